"""Results of replicas, compared with those of one GPU."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe


def gathered_calls(evidence: Evidence, at_least: int = 2) -> Iterator[tuple[Probe, Call]]:
    """List the calls whose results of so many replicas or more are known; gather joins a lone one too."""
    for probe, call in evidence.calls:
        if len(call.replicas) >= at_least and all(replica.output is not None for replica in call.replicas):
            yield probe, call


def is_off(probe: Probe) -> bool:
    """Whether results or gradients are neither those of one GPU nor those of the chunks."""
    comparison = probe.comparison
    if probe.raised is not None or probe.single.used_random:
        return False
    if comparison.values_equal is False:
        return not comparison.equals_chunkwise
    return comparison.values_equal is True and comparison.gradients_equal is False


def parts_of(probe: Probe, call: Call) -> Iterator[tuple[str, tuple[int, ...], list[tuple[int, ...]]]]:
    """List the tensors that one GPU and each replica return: path, shape on one GPU, the replicas' shapes."""
    split = shapes_of(call)
    for path, whole in probe.single.shapes.items():
        if len(split.get(path, ())) == len(call.replicas):
            yield path, whole, split[path]


def all_pairs(probe: Probe) -> Iterator[tuple[str, tuple[int, ...]]]:
    """List the results that have the batch on two dimensions, on one GPU and in each replica."""
    call = probe.call
    if call is None or len(call.replicas) < 2 or call.rows < 2:
        return
    for path, shape, parts in parts_of(probe, call):
        dims = [dim for dim, size in enumerate(shape) if size == call.rows]
        if len(dims) == 2 and {len(shape)} == set(map(len, parts)):
            first, second = dims
            is_whole = sum(part[first] for part in parts) == call.rows
            if is_whole and all(part[first] == part[second] for part in parts):
                yield path, shape


def counts_of(leaves: tuple[Leaf, ...]) -> dict[str, int]:
    """Count the elements of each list in a result: its path, and how many."""
    found: dict[str, set[str]] = {}
    for leaf in leaves:
        for step in re.finditer(r"\[(\d+)\]", leaf.path):
            found.setdefault(leaf.path[: step.start()], set()).add(step[1])
    return {path: len(indices) for path, indices in found.items()}


def shapes_of(call: Call) -> dict[str, list[tuple[int, ...]]]:
    """List the shapes of each part of the result, one for each replica."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for replica in call.replicas:
        for leaf in replica.output or ():
            if leaf.shape is not None:
                found.setdefault(leaf.path, []).append(leaf.shape)
    return found


def from_the_start(dim: int, rank: int) -> int:
    """Count a dimension from the first one."""
    return dim + rank if dim < 0 else dim


def per_sample(probe: Probe, call: Call) -> str | None:
    """Find a list with one element for each sample, on one GPU and in each replica."""
    split = probe.split
    if split is None or len(call.replicas) < 2:
        return None
    mine = [counts_of(replica.output or ()) for replica in call.replicas]
    for path, number in counts_of(probe.single.output).items():
        if number == call.rows and [counts.get(path) for counts in mine] == list(split.sizes()):
            return path
    return None


def is_meant_as_part(probe: Probe, path: str) -> bool:
    """Whether forward returns a number of shape (1,): so it is written to be one of several, and joined."""
    return probe.single.shapes.get(path) == (1,)


def vectors(probe: Probe, call: Call) -> list[str]:
    """List the parts of a result that are one number on one GPU and one for each replica here."""
    alone = probe.single.shapes
    of_samples = per_sample(probe, call)
    return [
        leaf.path
        for leaf in call.gathered or ()
        if alone.get(leaf.path) in ((), (1,), (1, 1))
        and leaf.shape in ((len(call.replicas),), (len(call.replicas), 1))
        and not (of_samples is not None and leaf.path.startswith(f"{of_samples}["))
    ]
