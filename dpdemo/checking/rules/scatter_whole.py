"""Arguments that scatter does not cut, or not as meant: DP207 to DP211."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe, StateChange
from dpdemo.checking.fills import Names, statement
from dpdemo.checking.questions.arguments import lists_of, lists_of_samples, reaches_all
from dpdemo.checking.questions.failures import failures
from dpdemo.checking.questions.words import article, top_name, words
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Hit, advise, change_call, padded


@rule("DP207", "replicated-batch", "error", explains=("raises", "rows", "difference"))
def replicated_batch(evidence: Evidence) -> Iterator[Hit]:
    """A batch that is no tensor goes to every replica whole.

    What happens: each replica works on all samples of a list, an array or a batch object: outputs have n
        times the rows, or lengths do not fit the chunk beside them.
    Why: scatter cuts tensors only; a list is opened element by element, and everything else is handed to all.
    Before: model(np_array)
    After: model(torch.as_tensor(np_array))   # lists of text: tokenize first, or cut by hand
    Seen by: an argument as long as the batch that every replica received whole.
    References: pytorch/pytorch#75442, pyg-team/pytorch_geometric#101, Lightning-AI/pytorch-lightning#1508
    """
    forward = evidence.scan.forward
    for probe, call in evidence.calls:
        is_right = probe.comparison.values_equal is True and call.raised is None
        if len(call.replicas) < 2 or not call.arguments or is_right:
            continue
        for name, what, advice in _whole_batches(probe, call):
            told = f"`{name}` ({what}) is not cut: each of the {len(call.replicas)} replicas gets all of it"
            yield Hit(name, told, forward, probe, advice=advice)
        for name, number in lists_of_samples(call).items():
            told = (
                f"`{name}` is a list of {number}, one for each sample: scatter opens it and cuts each "
                "tensor in it along its first dimension"
            )
            explains = ("cut",) if number != call.rows else ()  # those are the rows of one sample
            yield Hit(name, told, forward, probe, advice=_stacked(name, call), explains=explains)
        if not any(leaf.is_tensor or leaf.tensors_inside or leaf.length for leaf in call.arguments):
            told = f"no argument is a tensor: each of the {len(call.replicas)} replicas runs on all of them"
            yield Hit("no tensor", told, forward, probe)


def _stacked(name: str, call: Call) -> Advice:
    """Advise a tensor in the place of a list of tensors; of all else the numbers of its rows."""
    inside = [leaf.path for leaf in call.tensor_arguments if leaf.path.startswith(f"{name}[")]
    if not all(re.fullmatch(r"\w+\[\d+\]", path) for path in inside):
        return padded(name)
    note = f"and {name} = list({name}) in forward; tensors of unequal sizes are padded before"
    return change_call(call, note, **{name: f"torch.stack({name})"})


def _whole_batches(probe: Probe, call: Call) -> Iterator[tuple[str, str, Advice | None]]:
    """List what is as long as the batch and no tensor: its path, what it is, and what to pass instead."""
    rows = call.rows or probe.batch_size
    if rows < 2:
        return
    for leaf in call.arguments:
        if leaf.is_tensor or leaf.tensors_inside or not reaches_all(leaf.path, call):
            continue
        if leaf.length == rows and leaf.type not in {"str", "bytes"}:
            yield leaf.path, f"{leaf.type} of {rows}", _as_tensor(leaf.path, [leaf], call)
    for path, leaves in lists_of(call).items():
        is_of_tensors = any(leaf.is_tensor for part in leaves.values() for leaf in part)
        if len(leaves) != rows or is_of_tensors:
            continue
        if reaches_all(f"{path}[{rows - 1}]", call):
            first = next(iter(leaves.values()))
            step = first[0].path[len(path) :].partition("]")[2]
            kind = first[0].type if not step else "dict" if step.startswith("['") else "lists"
            every = [leaf for part in leaves.values() for leaf in part]
            yield path, f"a list of {rows} {kind}", _as_tensor(path, every, call)


def _as_tensor(path: str, leaves: list[Leaf], call: Call) -> Advice | None:
    """Advise a tensor in the place of numbers, and the numbers of its rows in the place of all else."""
    is_array = len(leaves) == 1 and leaves[0].type == "ndarray" and leaves[0].dtype not in {"object", "str"}
    if top_name(path) != path:
        return None
    if is_array or all(leaf.type in {"int", "float", "bool"} for leaf in leaves):
        return change_call(call, "and forward takes a tensor", **{path: f"torch.as_tensor({path})"})
    note = f"forward looks up by number what it stands for; or {path} is made a tensor before"
    return change_call(call, note, **{path: f"torch.arange(len({path}))"})


@rule("DP208", "opaque-tensors", "error", explains=("raises", "devices", "rows", "difference"))
def opaque_tensors(evidence: Evidence) -> Iterator[Hit]:
    """An argument of a class of its own is not split as a tensor is.

    What happens: tensors inside an object are neither cut nor moved: every replica gets the same object, on
        GPU 0, and `found at least two devices`. A defaultdict, and other classes of dict or list, cannot be
        built anew: `first argument must be callable or None`. A subclass of Tensor comes as a plain tensor.
    Why: scatter opens tuples, lists, dicts and namedtuples, by `type(obj)(items)`, and no other class: no
        dataclass, no UserDict; its C++ returns plain tensors.
    Before: model(Batch(x=x, mask=mask))
    After: model({"x": x, "mask": mask})
    Seen by: an argument of another class that holds tensors; an exception of scatter; or the class of a
        tensor in the call and in a replica, where results differ or one raises.
    References: pytorch/pytorch#45840, huggingface/transformers#2818, pytorch/pytorch#52597, pypose/pypose#258
    """
    forward = evidence.scan.forward
    for probe, call in evidence.calls:
        for leaf in call.arguments:
            if leaf.tensors_inside and len(call.replicas) > 1 and reaches_all(leaf.path, call):
                what = (
                    f"`{leaf.path}` is {article(leaf.type)} that holds {leaf.tensors_inside[0]}: scatter "
                    "does not look inside"
                )
                yield Hit(leaf.path, what, forward, probe, advice=_opened(leaf, call))
        for name, kind, is_dict in _own_containers(call):
            plain = f"{'dict' if is_dict else 'list'}({name})"
            if call.replicas and _is_lost(name, call):
                what = f"`{name}` is {article(kind)}, which scatter builds anew without what is in it"
                yield Hit(name, what, forward, probe, advice=change_call(call, **{name: plain}))
        yield from _lost_classes(probe, call, evidence)
    for probe, error in failures(evidence):
        if probe.call is None or error.stage != "scatter" or error.type != "TypeError":
            continue
        for name, text in probe.call.argument_structures:
            odd = re.search(r"(\w+)[{\[]", text)
            if odd:
                kind = article(odd[1])
                what = f"`{name}` is or holds {kind}, which scatter cannot build anew: {error.message}"
                yield Hit(
                    name, what, forward, probe, advice=change_call(probe.call, **{name: f"dict({name})"})
                )


def _opened(leaf: Leaf, call: Call) -> Advice | None:
    """Advise a dict in the place of an object."""
    if top_name(leaf.path) != leaf.path or not all(field.isidentifier() for field in leaf.fields):
        return None
    code = ", ".join(f'"{field}": {leaf.path}.{field}' for field in leaf.fields)
    return change_call(call, "and forward reads a dict", **{leaf.path: f"{{{code}}}"})


def _own_containers(call: Call) -> Iterator[tuple[str, str, bool]]:
    """List the arguments that are dicts or lists of another class: name, class, and whether it is a dict."""
    for name, text in call.argument_structures:
        if odd := re.match(r"(\w+)([{\[])", text):
            yield name, odd[1], odd[2] == "{"


def _is_lost(name: str, call: Call) -> bool:
    """Whether something was in an argument, and nothing of it came to any replica."""
    given = [leaf for leaf in call.arguments if leaf.path.startswith((f"{name}[", f"{name}."))]
    received = [leaf for replica in call.replicas for leaf in replica.inputs if top_name(leaf.path) == name]
    return bool(given) and not any(leaf.path != name for leaf in received)


def _lost_classes(probe: Probe, call: Call, evidence: Evidence) -> Iterator[Hit]:
    """Report tensors of a class of their own that come to replicas as plain ones, where that does harm."""
    is_harmless = probe.comparison.values_equal is True and call.raised is None
    for leaf in () if is_harmless else call.tensor_arguments:
        received = {
            taken.type for replica in call.replicas for taken in replica.inputs if taken.path == leaf.path
        }
        if leaf.type not in {"Tensor", "Parameter"} and received == {"Tensor"}:
            what = f"`{leaf.path}` is {article(leaf.type)}, and comes to replicas as a plain Tensor"
            code = "{name} = {name}.as_subclass({type})   # at the beginning of forward"
            advice = advise(code, name=leaf.path, type=leaf.type)
            yield Hit(leaf.path, what, evidence.scan.forward, probe, advice=advice)


@rule("DP210", "input-changed", "warning")
def input_changed(evidence: Evidence) -> Iterator[Hit]:
    """Forward changes an input in place, and the caller sees a part of it.

    What happens: after the call only the rows of chunk 0 are changed.
    Why: chunk 0 is a view of a tensor that is on the first GPU already; the others are copies.
    Before: x.mul_(2)
    After: x = x * 2
    Seen by: the inputs before and after, on one GPU and under DataParallel.
    References: torch/csrc/cuda/comm.cpp, scatter
    """
    for probe in evidence.probes:
        given = probe.call.arguments if probe.call else ()
        on_host = {leaf.path for leaf in given if leaf.device == "cpu"}  # forward works on copies of these
        for change in probe.changes:
            if change.kind == "input" and not change.same and change.path not in on_host:
                what = f"forward changes `{change.path}` in place: on one GPU all of it, here chunk 0 only"
                place = change.written.place or evidence.scan.forward
                clone = "{name} = {name}.clone()   # before it is changed in place"
                advice = advise(clone, fill=_cloned_before, name=change.path)
                yield Hit(change.path, what, place, probe, advice=advice)


def _cloned_before(line: str, names: Names) -> str:
    return f"{names['name']} = {names['name']}.clone()\n{line}" if statement(line) else ""


@rule("DP211", "shared-argument", "warning")
def shared_argument(evidence: Evidence) -> Iterator[Hit]:
    """Forward writes to an argument that all replicas share.

    What happens: a list or object passed in is written to by n threads: n times the entries, in any order. A
        dict passed in stays as it was. A note where forward only leaves something in it.
    Why: scatter hands what it cannot cut to every replica, the very same object; a dict or a list with
        tensors is made anew for each.
    Before: model(x, log)           # forward does log.append(...)
    After: y, entries = model(x)    # return it instead
    Seen by: the argument before and after.
    References: pytorch/pytorch#15993
    """
    for probe in evidence.probes:
        for change in probe.changes:
            if change.kind == "argument" and (change.parallel_changed or change.is_lost):
                writer = "each replica in a copy of its own" if change.is_lost else "all replicas"
                what = (
                    f"`{change.path}` is written by {writer}: {words(change.single)} after a call on one "
                    f"GPU, {words(change.parallel)} under DataParallel"
                )
                place = change.written.place or evidence.scan.forward
                is_note = change.is_lost and not _adds_to(change)
                yield Hit(change.path, what, place, probe, "info" if is_note else None)


def _adds_to(change: StateChange) -> bool:
    """Whether forward's statement makes an argument's new value of the one that it had, as a count does."""
    left, is_plain, right = change.written.text.partition("=")
    is_augmented = is_plain == "=" and left[-1:] in "+-*/|&%"
    return is_augmented or (is_plain == "=" and re.search(rf"\b{top_name(change.path)}\b", right) is not None)
