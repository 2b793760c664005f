"""What several rules ask of the evidence."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Entered, Evidence, Leaf, Probe, Raised
from dpdemo.checking.source import Function, attribute_of, class_at, function_at, numbers_of
from dpdemo.reports.check import Place

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


def forward_place(evidence: Evidence) -> Place | None:
    """Find the definition of the model's forward."""
    return evidence.scan.forward


def result_place(evidence: Evidence, call: Call | None = None) -> Place | None:
    """Find where forward returns its result: where a call did, or all did, if there are several places.

    Else where forward is defined.
    """
    calls = [call] if call is not None else [one for _, one in evidence.calls]
    places = {one.returned_at for one in calls}
    place = places.pop() if len(places) == 1 else None
    return place or forward_place(evidence)


def parameters_at(place: Place | None, evidence: Evidence) -> list[str]:
    """List the parameters of the module whose method a line stands in, as that module names them."""
    owner = class_at(place)
    path = next((path for path, kind in evidence.scan.module_types if kind == owner), "")
    prefix = f"{path}." if path else ""
    return [name.removeprefix(prefix) for name in evidence.scan.parameters if name.startswith(prefix)]


def device_at(place: Place | None, evidence: Evidence) -> str:
    """Write what names a replica's own GPU in a function: that of a tensor it has, as a plain call shows."""
    function = function_at(place)
    name = _likely_tensor(place, function, evidence)
    seen = entered_at(function, evidence)
    if seen is None or name in seen.tensors:
        return f"{name}.device"
    return f"{seen.tensors[0]}.device" if seen.tensors else _OF_THREAD


_OF_THREAD = 'torch.device("cuda", torch.cuda.current_device())'
"""The GPU of a replica's thread, where a function has no tensor to ask."""


def is_entered(function: Function, evidence: Evidence) -> bool:
    """Whether forward goes into a function, as far as is known."""
    return not evidence.entered or entered_at(function, evidence) is not None


def entered_at(function: Function | None, evidence: Evidence) -> Entered | None:
    """Find what a plain call had in a function; None where it did not go there, or is not known."""
    if function is None:
        return None
    first = min(one.lineno for one in (function.node, *function.node.decorator_list))
    return next((one for one in evidence.entered if (one.file, one.line) == (function.file, first)), None)


def _likely_tensor(place: Place | None, function: Function | None, evidence: Evidence) -> str:
    """Write what is a tensor in a function by what the code says: an input, or else a parameter."""
    given = (*evidence.scan.inputs, "x")[0]
    known = parameters_at(place, evidence)
    if function is None or given in function.arguments():
        return given
    if not class_at(place):
        return _tensor_of(function, 0, given)
    return attribute_of(known[0]) if known else _tensor_of(function, 1, given)


def _tensor_of(function: Function, first: int, given: str) -> str:
    """Write what is a tensor among a function's arguments.

    One that it asks for a device or a shape, or else the first; of a list its first.
    """
    names = [one.arg for one in function.node.args.args[first:]]
    code, every = ast.unparse(function.node), "|".join(map(re.escape, names))
    for asked in ("device", "shape|size|dtype|dim|new_zeros|to"):
        found = re.findall(rf"\b({every})\.(?:{asked})\b", code)
        if names and found:
            return str(found[0])
    name = (*names, given)[0]
    looped = rf"\b(enumerate\({name}\)|zip\([^()]*\b{name}\b|in {name}\b|len\({name}\))|\b{name}\[\w+\]"
    is_list = re.search(looped, code)
    return f"{name}[0]" if is_list else name


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
    for probe, call in evidence.calls:
        several = {leaf.path for leaf in call.tensor_arguments if leaf.size(call.dim) != 1}
        found |= several & {*probe.comparison.blamed, *probe.comparison.needed_whole}
    return found


def chunks_of(size: int, num_gpus: int) -> int:
    """Count the chunks that torch.chunk makes."""
    from dpdemo.arithmetic.chunk import split_batch

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


def reads_state(error: Raised) -> bool:
    """Whether a replica looked a parameter up in a state_dict, which has none there."""
    code = error.place.code if error.place else ""
    return error.type == "KeyError" and ".state_dict()" in code


def for_any_rows(code: str, probe: Probe, evidence: Evidence, file: str = "") -> str:
    """Write a line that counts on the whole batch for any number of rows; "" where that is not seen."""
    size = probe.batch_size
    constants = [rf"(?<![\w.]){name}\b" for name in numbers_of(file, size)]
    names = [rf"self\.{name}\b" for name, value in evidence.scan.numbers if value == size]
    given = probe.call.arguments if probe.call else ()
    alike = [leaf.path for leaf in given if leaf.type == "int" and leaf.text == str(size)]
    names += [rf"(?<![\w.]){path}\b" for path in alike if path.isidentifier()]
    for written in (*names, *constants, rf"(?<![\w.\[]){size}(?![\w.\]])"):
        after, number = re.subn(written, f"{(*evidence.scan.inputs, 'x')[0]}.size(0)", code)
        if number == 1:
            return after
    return ""


def two_devices(error: Raised) -> bool:
    """Return whether an exception is about operands on two devices."""
    return "same device" in error.message or "Expected all tensors to be on" in error.message


def may_be_of_sizes(error: Raised) -> bool:
    """Return whether an exception can come of a tensor that was cut: not one of devices or missing names."""
    return not two_devices(error) and error.type not in _OF_OTHER_THINGS


def crossed_devices(evidence: Evidence) -> Iterator[tuple[Probe, Raised]]:
    """List the two-device errors of replicas; a plain call on one GPU had none."""
    for probe, error in failures(evidence):
        if error.stage == "replica" and error.replica is not None and two_devices(error):
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


def call_of(call: Call, **changed: str) -> str:
    """Write a call with its arguments' own names: `model(x, mask=mask.expand(8, -1))`."""
    given, by_keyword = [], False
    for name, _ in call.argument_structures:
        by_keyword = by_keyword or name in changed  # and from there on: none may stand behind by position
        given.append(f"{name}={changed.get(name, name)}" if by_keyword else name)
    known = {name for name, _ in call.argument_structures}
    given += [f"{name}={code}" for name, code in changed.items() if name not in known]
    return f"model({', '.join(given)})"


def call_by_keyword(call: Call, **changed: str) -> str:
    """Write a call with all of its arguments by keyword, so that they make one list of chunks."""
    names = dict.fromkeys([*(name for name, _ in call.argument_structures), *changed])
    return f"model({', '.join(f'{name}={changed.get(name, name)}' for name in names)})"


def call_with(call: Call, path: str, code: str) -> str:
    """Write a call in which one value is another: in the call, or before it where it lies in a dict."""
    return call_of(call, **{path: code}) if top_name(path) == path else f"{path} = {code}   # before the call"


def expanded(leaf: Leaf, call: Call, *, is_column: bool = False) -> str:
    """Write how a tensor of one row is given one for each sample; a lone number perhaps as a column."""
    shape = (leaf.shape or ()) + (1,) * is_column
    sizes = ["-1"] * (len(shape) - is_column) + ["1"] * is_column
    batch = next((one.path for one in call.tensor_arguments if one.size(0) == call.rows), "")
    sizes[call.dim] = f"len({batch})" if batch and call.dim == 0 else str(call.rows)
    return f"{leaf.path}.expand({', '.join(sizes)})"


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
