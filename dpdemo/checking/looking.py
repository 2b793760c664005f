"""Questions that several rules ask of the evidence, and the words that they have in common."""

import re
from collections.abc import Iterator
from dataclasses import replace

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.checking.errors import NOTHING_THERE, is_of_devices, tells
from dpdemo.checking.evidence import (
    Call,
    Event,
    Evidence,
    Held,
    Kept,
    Leaf,
    Norm,
    Probe,
    Raised,
    StateChange,
    Value,
)
from dpdemo.results.findings import Place

_OF_OTHER_THINGS = {"StopIteration", "AttributeError", "NameError", "ImportError", "ModuleNotFoundError",
                    "NotImplementedError", "OutOfMemoryError", "RecursionError"}  # fmt: skip
STATISTICS = ("running_mean", "running_var")
"""The buffers of a BatchNorm that follow its batches."""


def failures(evidence: Evidence) -> Iterator[tuple[Probe, Raised]]:
    """List every exception seen under DataParallel, of each replica and of each step, and of rehearsals."""
    for probe in evidence.probes:
        seen: list[Raised] = []
        for call in probe.calls:
            seen += [replica.raised for replica in call.replicas if replica.raised is not None]
            if call.raised is not None and call.raised.replica is None:
                seen.append(call.raised)
        if probe.raised is not None and not probe.calls:
            seen.append(probe.raised)
        if probe.gather_rehearsal is not None:
            seen.append(probe.gather_rehearsal)
        yield from ((probe, error) for error in seen)


def gather_failures(evidence: Evidence) -> Iterator[tuple[Probe, Call, Raised]]:
    """List what gather refused, in a run or in a rehearsal."""
    for probe, error in failures(evidence):
        if error.stage == "gather" and probe.call is not None:
            yield probe, probe.call, error


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


def result_at(path: str) -> str:
    """Name a part of the result in a sentence."""
    return f"the result's `{path}`" if path else "the result"


def short_arguments(call: Call) -> list[Leaf]:
    """List the tensors that give fewer chunks than the batch does."""
    found = []
    for leaf in call.tensor_arguments:
        size = leaf.size(call.dim)
        if call.is_for_each_gpu(leaf):
            continue
        if size is not None and 0 < chunks_of(size, call.num_gpus) < call.num_chunks:
            found.append(leaf)
    return found


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
    return next((one.path for one in call.tensor_arguments if one.size(0) == call.rows), "")


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
            if leaf.path == counts.path:
                continue
            adds_up = rows in counts.adds_up_to and number <= rows + 1 and number != rows
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
    """List how the paths of all that is in such lists begin: DP207 tells of it."""
    return tuple(f"{path}[" for _, call in evidence.calls for path in lists_of_samples(call))


def _differ_in_rows(tensors: list[Leaf], number: int, call: Call) -> bool:
    """Whether each part of a list is a tensor, all of one shape but for their rows, and there is no other."""
    shapes = {leaf.shape[1:] for leaf in tensors if leaf.shape}
    is_all = len(tensors) == number == len(call.tensor_arguments) > 2
    return is_all and len(shapes) == 1 and len({leaf.size(0) for leaf in tensors}) > 1


def chunks_of(size: int, num_gpus: int) -> int:
    """Count the chunks that torch.chunk makes."""
    return split_batch(size, num_gpus).num_chunks


def delivered_rows(call: Call) -> int:
    """Count the rows of the batch that reached the replicas, by the tensor that received most."""
    totals: dict[str, int] = {}
    for replica in call.replicas:
        for leaf in replica.inputs:
            size = leaf.size(call.dim)
            if size is not None:
                totals[leaf.path] = totals.get(leaf.path, 0) + size
    return max(totals.values(), default=0)


def reaches_all(path: str, call: Call) -> bool:
    """Return whether every replica got what is at a path; a wrapper with its own scatter may have cut it."""
    return all(any(leaf.path.startswith(path) for leaf in replica.inputs) for replica in call.replicas)


def is_hidden_state(leaf: Leaf, call: Call) -> bool:
    """Return whether a tensor looks like an RNN's state, with the batch on dimension 1."""
    shape = leaf.shape or ()
    batches = {call.rows, *(one.size(0) for one in call.tensor_arguments[:1])}  # states may outnumber it
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


def may_be_of_sizes(error: Raised) -> bool:
    """Return whether an exception can come of a tensor that was cut: not one of devices or missing names."""
    return not is_of_devices(error.message) and error.type not in _OF_OTHER_THINGS


def crossed_devices(evidence: Evidence) -> Iterator[tuple[Probe, Raised]]:
    """List the two-device errors of replicas; a plain call on one GPU had none."""
    for probe, error in failures(evidence):
        if error.stage == "replica" and error.replica is not None and is_of_devices(error.message):
            yield probe, error


def listed(names: list[str]) -> str:
    """Write names for a sentence: `a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in dict.fromkeys(names)]
    if len(quoted) > 4:
        return f"{', '.join(quoted[:2])} and {len(quoted) - 2} more"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def sizes_text(sizes: list[int]) -> str:
    """Write the rows of chunks: `2+2+2+1`."""
    return "+".join(map(str, sizes))


def top_name(path: str) -> str:
    """Return the argument that a path begins with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def all_pairs(probe: Probe) -> Iterator[tuple[str, tuple[int, ...]]]:
    """List the results that have the batch on two dimensions, on one GPU and in each replica."""
    call = probe.call
    if call is None or len(call.replicas) < 2 or call.rows < 2:
        return
    for leaf in probe.single.output:
        shape = leaf.shape or ()
        dims = [dim for dim, size in enumerate(shape) if size == call.rows]
        parts = [
            part.shape
            for replica in call.replicas
            for part in replica.output or ()
            if part.path == leaf.path and part.shape is not None
        ]
        if (
            len(dims) == 2
            and len(parts) == len(call.replicas)
            and all(len(part) == len(shape) for part in parts)
        ):
            first, second = dims
            if sum(part[first] for part in parts) == call.rows and all(
                part[first] == part[second] for part in parts
            ):
                yield leaf.path, shape


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


def is_batch(shape: tuple[int, ...], dim: int, rows: int) -> bool:
    """Whether a dimension is as long as the batch."""
    return dim < len(shape) and shape[dim] == rows


def per_sample(probe: Probe, call: Call) -> str | None:
    """Find a list with one element for each sample, on one GPU and in each replica."""
    split = probe.split
    if split is None or len(call.replicas) < 2:
        return None
    mine = [counts_of(replica.output or ()) for replica in call.replicas]
    for path, number in counts_of(probe.single.output).items():
        if number == call.rows and [one.get(path) for one in mine] == list(split.sizes()):
            return path
    return None


def is_meant_as_part(probe: Probe, path: str) -> bool:
    """Whether forward returns a number of shape (1,): so it is written to be one of several, and joined."""
    return any(leaf.path == path and leaf.shape == (1,) for leaf in probe.single.output)


def vectors(probe: Probe, call: Call) -> list[str]:
    """List the parts of a result that are one number on one GPU and one for each replica here."""
    alone = {leaf.path: leaf.shape for leaf in probe.single.output}
    of_samples = per_sample(probe, call)
    return [
        leaf.path
        for leaf in call.gathered or ()
        if alone.get(leaf.path) in ((), (1,), (1, 1))
        and leaf.shape in ((len(call.replicas),), (len(call.replicas), 1))
        and not (of_samples is not None and leaf.path.startswith(f"{of_samples}["))
    ]


# state that forward changes


def changes_of(evidence: Evidence, *kinds: str) -> Iterator[tuple[Probe, StateChange]]:
    """List what forward changed of these kinds of state, in each probe in which a replica ran."""
    for probe in evidence.probes:
        replicas = probe.call.replicas if probe.call else ()
        if any(replica.output is not None or replica.raised for replica in replicas):
            yield from ((probe, change) for change in probe.changes if change.kind in kinds)


def synchronised(evidence: Evidence, probe: Probe) -> list[Norm]:
    """List the norms that clamp by eps, and whose replicas were seen to take their statistics together."""
    if probe.mode != "train" or probe.call is None or len(probe.call.replicas) < 2:
        return []
    statistics = [one for one in probe.changes if one.name in STATISTICS]
    followed = {one.path.rpartition(".")[0] for one in statistics if one.parallel_changed}
    apart = {one.path.rpartition(".")[0] for one in statistics if not one.same}
    own = [norm for norm in evidence.scan.norms if norm.is_own and norm.clamps]
    return [norm for norm in own if norm.path in followed and norm.path not in apart]


def draws_its_own(probe: Probe) -> bool:
    """Whether replicas draw from generators of the program's, which forward may seed."""
    return any(event.kind == "generator" for call in probe.calls for event in call.events)


def gets_other_data(change: StateChange) -> bool:
    """Whether forward gives the same parameter other numbers, as `self.w.data = ...` does, in vain."""
    is_assigned = re.match(rf"[\w.\[\]]+\.{change.name}\s*=(?!=)", change.written) is not None
    return change.is_lost and not is_assigned and change.before == change.single


def place_of(change: StateChange) -> Place | None:
    """Return the line that changes a piece of state, or the one that sets it first."""
    return change.written_at or change.place


def attribute_at(path: str, me: str = "self") -> str:
    """Write what is at a path of a model: `self.layers[0].weight`."""
    return me + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path.split("."))


def words(value: Value) -> str:
    """Write a value in a few words: `a list of 2`, `a tensor of shape (3,)`, `0.5`."""
    if value.text:
        return value.text
    if value.number is not None:
        return f"{value.number:.4g}"
    if value.shape is not None:
        return f"{_article(value.type if value.type == 'array' else 'tensor')} of shape {value.shape}"
    if value.is_absent:
        return "absent"
    if value.length is not None:
        return f"{_article(value.type)} of {value.length}"
    inside = ", ".join(f"{name}={words(part)}" for name, part in value.parts)
    return f"{_article(value.type)} ({inside})" if inside else _article(value.type)


def _article(kind: str) -> str:
    return f"an {kind}" if kind.lower().startswith(("a", "e", "i", "o", "u")) else f"a {kind}"


# questions for parameters, of which a replica has none

_ASKED = ("named_parameters", "requires_grad_", "state_dict")
BY_NAME = re.compile(r"parameters\(|state_dict\(")
"""A line of the user's that asks for parameters itself."""


def questions_for_parameters(call: Call) -> list[Event]:
    """List where replicas asked for parameters, or to freeze them; `zero_grad()` does so for DP311."""
    asked = (event for event in call.events if event.kind in _ASKED)
    return [event for event in asked if not (event.place and "zero_grad(" in event.place.code)]


def comes_of_no_parameters(error: Raised, call: Call | None) -> bool:
    """Return whether an error is what becomes of no parameters, in a function that has asked for them."""
    if tells("DP308", error):
        return True
    if call is None or not re.search(NOTHING_THERE, f"{error.type}: {error.message}"):
        return False
    # a package that the line calls may have asked, and knows what to do
    asked = [
        one.place for one in questions_for_parameters(call) if one.place and BY_NAME.search(one.place.code)
    ]
    is_name = error.type == "KeyError" and re.search(_NAME_OF_ONE, error.message)
    if asked and (re.search(r"empty|got 0\)", error.message) or is_name):
        return True  # wherever the list, or the dict, has been handed on to
    through = {(place.file, place.function) for place in error.places}
    return any(
        (place.file, place.function) in through or f".{place.function}(" in error.source for place in asked
    )


_NAME_OF_ONE = r"'[\w.]*(weight|bias)[\w.]*'|'\w+(\.\w+)+'"
"""A key that is a parameter's name."""


def reads_state(error: Raised) -> bool:
    """Whether a replica looked a parameter up in a state_dict, which has none there."""
    return error.type == "KeyError" and error.place is not None and ".state_dict()" in error.place.code


def numbers_for_tensors(probe: Probe, call: Call) -> Iterator[str]:
    """List the parts of a result that are a tensor on one GPU, and the number 0 where none was summed."""
    if questions_for_parameters(call):
        alone = {leaf.path for leaf in probe.single.output if leaf.is_tensor}
        parts = (leaf for replica in call.replicas for leaf in replica.output or ())
        odd = (leaf.path for leaf in parts if leaf.path in alone and leaf.type in {"int", "float"})
        yield from dict.fromkeys(odd)


# what a replica that raised stumbled over


def names(error: Raised, name: str, *, is_bare: bool = False) -> bool:
    """Whether the user's functions that an exception went through name an attribute.

    Not the lines alone: what was at fault may have got another name a line before, as in a loop over it.
    """
    name = re.escape(name)
    pattern = rf"\b{name}\b" if is_bare else rf"\.{name}\b|['\"]{name}['\"]"
    return re.search(pattern, error.source) is not None


def failed_through(evidence: Evidence) -> list[tuple[Held, Probe, Raised]]:
    """List what ties a part of the model to the original around it, and a replica that failed through it.

    The original is on GPU 0, and has nothing of what the replica around the part has set on itself.
    """
    return [
        (held, probe, error)
        for held in evidence.scan.of_kind("ancestor")
        for probe, error in failures(evidence)
        if error.stage == "replica" and not is_of_devices(error.message) and names(error, held.name)
    ][:1]


def reads_in_vain(error: Raised, kept: Kept) -> bool:
    """Whether a replica failed over what a hook keeps: on the original, and no replica has it."""
    is_of_names = error.type in {"AttributeError", "KeyError", "IndexError", "TypeError"}
    return error.stage == "replica" and is_of_names and any(names(error, name) for name in kept.names)


def placed_in_forward(evidence: Evidence) -> set[str]:
    """Name the objects on `self` with tensors on the CPU, which forward changes, and a replica fails over."""
    if not any(crossed_devices(evidence)):
        return set()
    changed = {one.path for probe in evidence.probes for one in probe.changes if one.parallel_changed}
    held = evidence.scan.of_kind("tensor")
    return {one.path for one in held if one.within and one.device == "cpu" and one.path in changed}
