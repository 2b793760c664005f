"""Which arguments have a row for each sample, and which are to be whole."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe


def short_arguments(call: Call) -> list[Leaf]:
    """List the tensors that give fewer chunks than the batch does."""
    return [
        leaf
        for leaf in call.tensor_arguments
        if not call.is_for_each_gpu(leaf)
        and 0 < split_batch(leaf.size(call.dim) or 0, call.num_gpus).num_chunks < call.num_chunks
    ]


def must_stay_whole(evidence: Evidence) -> set[str]:
    """Name the arguments that are meant whole, as running again with them whole has shown in any probe."""
    found: set[str] = set()
    samples = in_lists_of_samples(evidence)
    for probe, call in evidence.calls:
        several = {leaf.path for leaf in call.tensor_arguments if leaf.size(call.dim) != 1}
        meant = {*probe.comparison.blamed, *probe.comparison.needed_whole} & several
        found |= {path for path in meant if not path.startswith(samples)}
    return found


def batch_of(call: Call) -> str:
    """Name the first tensor that has the rows of the batch."""
    return next((argument.path for argument in call.tensor_arguments if argument.size(0) == call.rows), "")


def packed_arguments(probe: Probe, call: Call) -> tuple[list[str], list[str]]:
    """Name the tensors that are samples one after another, and what says how long each sample is.

    The latter are whole numbers that climb to, or add up to, the rows of the former: offsets, cumulative
    lengths, lengths, grids of patches; or that say where each sample begins, or of which one each row is,
    where one GPU's result has a row for each.
    """
    joined, by = dict[str, None](), dict[str, None]()
    results = {leaf.size(0) for leaf in probe.single.output if leaf.shape}
    for counts in (*call.tensor_arguments, *_lists_of_counts(call)):
        number = counts.size(0) or 0
        for leaf in call.tensor_arguments:
            rows = leaf.size(0) or 0
            if leaf.path == counts.path or call.is_for_each_gpu(leaf):
                continue
            sums, ends = counts.adds_up_to[:1], counts.adds_up_to[1:]
            adds_up = (rows in sums and number < rows) or (rows in ends and number <= rows + 1 != number + 1)
            if adds_up or _begins_samples(counts, rows, results) or _numbers_samples(counts, rows, results):
                joined[leaf.path] = by[counts.path] = None
    return [path for path in joined if path not in by], list(by)


def _begins_samples(counts: Leaf, rows: int, results: set[int | None]) -> bool:
    """Whether whole numbers may be the first rows of samples, as EmbeddingBag's offsets are."""
    number = counts.size(0) or 0
    return (
        counts.climb is not None and counts.climb[0] < rows and number < rows and results - {rows} == {number}
    )


def _numbers_samples(counts: Leaf, rows: int, results: set[int | None]) -> bool:
    """Whether whole numbers may be the sample of each row, as the `batch` of PyTorch Geometric is."""
    if counts.climb is None or counts.size(0) != rows:
        return False
    last, step = counts.climb
    return step == 1 and last + 1 < rows and results - {rows} == {last + 1}


def _lists_of_counts(call: Call) -> Iterator[Leaf]:
    """List the lists and arrays of whole numbers among the arguments, as tensors of them."""
    arrays = (leaf for leaf in call.arguments if leaf.adds_up_to and not leaf.is_tensor)
    yield from (replace(leaf, shape=(leaf.length or 0,)) for leaf in arrays)
    for path, parts in lists_of(call).items():
        leaves = [leaf for part in parts.values() for leaf in part]
        if len(leaves) == len(parts) > 1 and all(leaf.type == "int" for leaf in leaves):
            numbers = [int(leaf.text) for leaf in leaves]
            yield Leaf(path, "list", (len(numbers),), adds_up_to=(sum(numbers), numbers[-1]))


def lists_of(call: Call) -> dict[str, dict[str, list[Leaf]]]:
    """Group the leaves of each list among the arguments by their place in it."""
    groups: dict[str, dict[str, list[Leaf]]] = {}
    for leaf in call.arguments:
        step = re.match(r"([^\[]*)\[(\d+)\]", leaf.path) or re.match(r"(.*?)\[(\d+)\]", leaf.path)
        if step:
            groups.setdefault(step[1], {}).setdefault(step[2], []).append(leaf)
    return groups


def lists_of_samples(call: Call) -> dict[str, int]:
    """Name the lists with tensors that have an element for each sample: targets, pictures, graphs.

    Where nothing else tells how many samples there are, tensors that differ in their rows alone are some.
    """
    found = {}
    for path, parts in lists_of(call).items():
        tensors = [leaf for part in parts.values() for leaf in part if leaf.is_tensor]
        is_batched = all(leaf.size(call.dim) == call.rows for leaf in tensors)
        of_samples = len(parts) == call.rows > 1 and (call.pictures or not is_batched)
        if tensors and (of_samples or _differ_in_rows(tensors, len(parts), call)):
            found[path] = len(parts)
    return found


def in_lists_of_samples(evidence: Evidence) -> tuple[str, ...]:
    """List how the paths of all that is in such lists begin."""
    return tuple(f"{path}[" for _, call in evidence.calls for path in lists_of_samples(call))


def _differ_in_rows(tensors: list[Leaf], number: int, call: Call) -> bool:
    """Whether each part of a list is a tensor, all of one shape but for their rows, and there is no other."""
    shapes = {leaf.shape[1:] for leaf in tensors if leaf.shape}
    is_all = len(tensors) == number == len(call.tensor_arguments) > 2
    return is_all and len(shapes) == 1 and len({leaf.size(0) for leaf in tensors}) > 1


def delivered_rows(call: Call) -> int:
    """Count the rows of the batch that reached the replicas, by the tensor that received most."""
    totals = Counter[str]()
    for leaf in (leaf for replica in call.replicas for leaf in replica.inputs):
        totals[leaf.path] += leaf.size(call.dim) or 0
    return max(totals.values(), default=0)


def reaches_all(path: str, call: Call) -> bool:
    """Return whether every replica got what is at a path; a wrapper with its own scatter may have cut it."""
    return all(any(leaf.path.startswith(path) for leaf in replica.inputs) for replica in call.replicas)


def is_hidden_state(leaf: Leaf, call: Call) -> bool:
    """Return whether a tensor looks like an RNN's state, with the batch on dimension 1."""
    shape = leaf.shape or ()
    first = call.tensor_arguments[:1]  # states may outnumber it
    batches = {call.rows, *(argument.size(0) for argument in first)}
    return len(shape) == 3 and shape[1] in batches and shape[1] != shape[0]


def hidden_states(evidence: Evidence) -> set[str]:
    """Name the arguments that have the batch on dimension 1 in every call, as an RNN's state does.

    Of one batch size alone that may be chance: then it takes an RNN in the model.
    """
    calls = [call for _, call in evidence.calls]
    has_rnn = any(kind == "RNN" or kind.endswith("Cell") for _, kind in evidence.scan.module_types)
    if not has_rnn and len({call.rows for call in calls}) == 1:
        return set()
    alike = [{leaf.path for leaf in call.tensor_arguments if is_hidden_state(leaf, call)} for call in calls]
    return set.intersection(*alike) if alike else set()
