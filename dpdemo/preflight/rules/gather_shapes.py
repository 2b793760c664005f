"""Structures and shapes that gather cannot join, or joins wrongly: DP405, DP406, DP408, DP409, DP490."""

import re
from collections.abc import Iterator

from dpdemo.preflight.evidence import Call, Evidence, Leaf, Probe
from dpdemo.preflight.looking import forward_place, gather_failures, gathered_calls, result_at, sizes_text
from dpdemo.preflight.registry import Found, rule


def _counts(leaves: tuple[Leaf, ...]) -> dict[str, int]:
    """Count the elements of each list in a result: its path, and how many."""
    found: dict[str, set[str]] = {}
    for leaf in leaves:
        for step in re.finditer(r"\[(\d+)\]", leaf.path):
            found.setdefault(leaf.path[: step.start()], set()).add(step[1])
    return {path: len(indices) for path, indices in found.items()}


def _per_sample(probe: Probe, call: Call) -> str | None:
    """Find a list with one element for each sample, on one GPU and in each replica."""
    split = probe.split
    if split is None or len(call.replicas) < 2:
        return None
    mine = [_counts(replica.output or ()) for replica in call.replicas]
    for path, number in _counts(probe.single.output).items():
        if number == call.rows and [one.get(path) for one in mine] == list(split.sizes()):
            return path
    return None


@rule("DP405", "structure-differs", "error")
def structure_differs(evidence: Evidence) -> Iterator[Found]:
    """Replicas return results of different structure.

    What happens: `All dicts must have the same number of keys`, KeyError, `zip() argument 2 is longer`, or
        `Expected all input tensors to have the same number of dimensions`.
    Why: gather joins part by part.
    Before: return {"y": y, **({"aux": aux} if found else {})}
    After: return {"y": y, "aux": aux}
    Seen by: the structure of each replica's result, before gather.
    References: open-mmlab/mmdetection#2303
    """
    for probe, call in gathered_calls(evidence):
        first = call.replicas[0].structure
        for replica in call.replicas[1:]:
            if replica.structure == first or _per_sample(probe, call) is not None:
                continue
            if "None" in replica.structure + first:
                continue  # DP404 tells that story
            yield Found(
                "structure",
                f"replica 0 returns {first}, replica {replica.index} {replica.structure}",
                forward_place(evidence),
                probe,
            )
            break


@rule("DP406", "shape-differs", "error", unless=("DP205",))
def shape_differs(evidence: Evidence) -> Iterator[Found]:
    """Replicas return tensors that differ in more than their rows.

    What happens: `Input tensor at index 1 has invalid shape [1, 230], but expected [1, 231]`.
    Why: gather joins along the batch dimension and wants all others equal; sizes that depend on the data,
        such as padding to the longest of a chunk, differ.
    Before: return y[:, : lengths.max()]
    After: return y   # padded to the size of the input
    Seen by: the shapes of each replica's result, before gather.
    References: pytorch/pytorch#44141, huggingface/transformers#1220
    """
    if evidence.scan.pads_alone:
        return
    for probe, call in gathered_calls(evidence):
        alone = {leaf.path: leaf.shape or () for leaf in probe.single.output}
        for path, shapes in _shapes(call).items():
            ranks = {len(shape) for shape in shapes}
            if len(shapes) < 2 or len(ranks) > 1:
                continue
            for dim in range(max(ranks)):
                sizes = [shape[dim] for shape in shapes]
                if (
                    dim != _from_the_start(call.dim, max(ranks))
                    and len(set(sizes)) > 1
                    and not _is_batch(alone.get(path, ()), dim, call.rows)
                ):
                    yield Found(
                        path,
                        f"{result_at(path)} has size {sizes_of(sizes)} on dimension {dim}",
                        forward_place(evidence),
                        probe,
                    )


def sizes_of(sizes: list[int]) -> str:
    """Write sizes that should be one: `3, 5, 5 and 5`."""
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"


def _shapes(call: Call) -> dict[str, list[tuple[int, ...]]]:
    found: dict[str, list[tuple[int, ...]]] = {}
    for replica in call.replicas:
        for leaf in replica.output or ():
            if leaf.shape is not None:
                found.setdefault(leaf.path, []).append(leaf.shape)
    return found


def _from_the_start(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _is_batch(shape: tuple[int, ...], dim: int, rows: int) -> bool:
    return dim < len(shape) and shape[dim] == rows


@rule("DP408", "merged-list", "error")
def merged_list(evidence: Evidence) -> Iterator[Found]:
    """Lists with an element for each sample are merged, not joined.

    What happens: 8 images on 4 GPUs come back as a list of 2, with the boxes of images 0, 2, 4 and 6 in
        one; uneven
        chunks: `zip() argument 4 is shorter than arguments 1-3`.
    Why: gather zips the lists of the replicas and joins element by element.
    Before: return [{"boxes": boxes} for boxes in per_image]
    After: return torch.stack(padded), counts   # tensors with a batch dimension
    Seen by: the length of the list on one GPU, in each replica and after gather.
    References: pytorch/pytorch#25627, pytorch/pytorch#13447
    """
    for probe, call in gathered_calls(evidence):
        path = _per_sample(probe, call)
        if path is not None and call.rows > len(call.replicas):
            after = _counts(call.gathered or ()).get(path)
            ending = f"comes back with {after}" if after else "cannot be joined"
            sizes = sizes_text(list(probe.split.sizes())) if probe.split else ""
            yield Found(
                path,
                f"{result_at(path)} is a list of {call.rows}, one for each sample; from {sizes} it {ending}",
                forward_place(evidence),
                probe,
            )


@rule("DP409", "batch-dimension", "error")
def batch_dimension(evidence: Evidence) -> Iterator[Found]:
    """A result has its batch on another dimension than the one that is gathered.

    What happens: results of (L, B, H), or an RNN's h_n of (layers, B, H), are joined along dimension 0:
        right numbers in a wrong shape, without a word.
    Why: gather joins along DataParallel's `dim`, 0 if not set, whatever a dimension means.
    Before: return output, h_n
    After: return output, h_n.transpose(0, 1)   # batch first, and back outside
    Seen by: the shape on one GPU against the gathered one.
    References: pytorch/pytorch#7890
    """
    for probe, call in gathered_calls(evidence):
        alone = {leaf.path: leaf.shape for leaf in probe.single.output}
        for path, shapes in _shapes(call).items():
            whole = alone.get(path)
            if whole is None or len(whole) != len(shapes[0]) or call.rows < 2:
                continue
            for dim in range(len(whole)):
                chunks = [shape[dim] for shape in shapes]
                if (
                    dim != _from_the_start(call.dim, len(whole))
                    and whole[dim] == call.rows
                    and sum(chunks) == call.rows
                    and len(chunks) > 1
                ):
                    yield Found(
                        path,
                        f"{result_at(path)} of shape {whole} has the batch on dimension {dim}, and is joined "
                        f"along dimension {call.dim}",
                        forward_place(evidence),
                        probe,
                    )


@rule("DP490", "gather-failed", "error", unless=("DP205", "DP209", "DP214", "DP4"))
def gather_failed(evidence: Evidence) -> Iterator[Found]:
    """Results cannot be gathered, for a reason that no other rule knows.

    What happens: all replicas are through, and joining their results raises.
    Why: gather joins tensors, inside tuples, lists and dicts that all replicas return alike.
    Before: return OwnList([y])
    After: return [y]
    Seen by: an exception while results are gathered.
    References: torch/nn/parallel/scatter_gather.py, gather_map
    """
    for probe, _, error in gather_failures(evidence):
        yield Found(error.message, f"the results cannot be gathered: {error}", forward_place(evidence), probe)
