"""Arguments that scatter does not cut, or not as meant: DP207 to DP211."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe
from dpdemo.checking.lines import function_at, writing_argument
from dpdemo.checking.looking import (
    call_of,
    call_with,
    failures,
    forward_place,
    reaches_all,
    top_name,
)
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.results import whole_return
from dpdemo.reports.check import Place


@rule("DP207", "replicated-batch", "error")
def replicated_batch(evidence: Evidence) -> Iterator[Found]:
    """A batch that is no tensor goes to every replica whole.

    What happens: each replica works on all samples of a list, an array or a batch object: outputs have n
        times the rows, or lengths do not fit the chunk beside them.
    Why: scatter cuts tensors only; a list is opened element by element, and everything else is handed to all.
    Before: model(np_array)
    After: model(torch.as_tensor(np_array))   # lists of text: tokenize first, or cut by hand
    Seen by: an argument as long as the batch that every replica received whole.
    References: pytorch/pytorch#75442, pyg-team/pytorch_geometric#101, Lightning-AI/pytorch-lightning#1508
    """
    for probe, call in evidence.calls:
        if len(call.replicas) < 2 or not call.arguments or _is_harmless(probe, call):
            continue
        for name, what, after in _whole_batches(probe, call, evidence):
            yield Found(
                name,
                f"`{name}` ({what}) is not cut: each of the {len(call.replicas)} replicas gets all of it",
                forward_place(evidence),
                probe,
                before=call_of(call),
                after=after,
            )
        for name in _picture_lists(call):
            yield Found(
                name,
                f"`{name}` is a list of {call.rows} tensors: scatter opens it and cuts each along its first "
                "dimension, the channels",
                forward_place(evidence),
                probe,
                before=call_of(call),
                after=call_of(call, **{name: f"torch.stack({name})"})
                + f"   # padded to one size; forward: list({name}) if need be",
            )
        if not any(leaf.is_tensor or leaf.tensors_inside or leaf.length for leaf in call.arguments):
            yield Found(
                "no tensor",
                f"no argument is a tensor: each of the {len(call.replicas)} replicas runs on all of them",
                forward_place(evidence),
                probe,
            )


def _is_harmless(probe: Probe, call: Call) -> bool:
    return probe.comparison.values_equal is True and call.raised is None


def _picture_lists(call: Call) -> list[str]:
    """Name the arguments that are lists of pictures."""
    if not call.pictures:
        return []
    found = {step[1] for leaf in call.tensor_arguments if (step := re.fullmatch(r"(\w+)\[\d+\]", leaf.path))}
    return sorted(found)


_CASTS = ("float", "double", "half", "long", "int", "bool")


def _made_a_tensor(path: str, evidence: Evidence) -> str:
    """Write how forward itself makes a tensor of an argument, but for its device; "" where it does not."""
    found, forward = "", function_at(forward_place(evidence))
    for node in ast.walk(forward.node) if forward else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="as_tensor" | "tensor" | "from_numpy"), args=[given, *_]):
                if ast.unparse(given) == path:
                    kept = [one for one in node.keywords if one.arg != "device"]
                    found = found or ast.unparse(ast.Call(node.func, node.args, kept))
            case ast.Call(func=ast.Attribute(attr=cast, value=ast.Call(args=[given, *_]) as made), args=[]):
                if cast in _CASTS and ast.unparse(given) == path:
                    found = f"{ast.unparse(made)}.{cast}()"
    return "" if re.search(r"\bself\b", found) else found


def _whole_batches(probe: Probe, call: Call, evidence: Evidence) -> Iterator[tuple[str, str, str]]:
    """List what is as long as the batch and no tensor: its path, what it is, and what to pass instead."""
    rows = call.rows or probe.batch_size
    if rows < 2:
        return
    for leaf in call.arguments:
        if not reaches_all(leaf.path, call):
            continue
        if not leaf.is_tensor and leaf.length == rows and leaf.type not in ("str", "bytes"):
            made = _made_a_tensor(leaf.path, evidence) or f"torch.as_tensor({leaf.path})"
            here = "   # here, and not in forward" if "from_numpy" in made else ""  # which takes no tensor
            yield leaf.path, f"{leaf.type} of {rows}", call_with(call, leaf.path, made) + here
    for path, leaves in _lists(call).items():
        is_of_tensors = any(leaf.is_tensor for part in leaves.values() for leaf in part)
        if len(leaves) == rows and not is_of_tensors and reaches_all(f"{path}[{rows - 1}]", call):
            first = next(iter(leaves.values()))
            step = first[0].path[len(path) :].partition("]")[2]
            what = first[0].type if not step else "dict" if step.startswith("['") else "lists"
            are_numbers = all(
                leaf.type in ("int", "float", "bool") for part in leaves.values() for leaf in part
            )
            if are_numbers and step.startswith("[") and len({len(part) for part in leaves.values()}) > 1:
                padded = f"nn.utils.rnn.pad_sequence([torch.tensor(one) for one in {path}], batch_first=True)"
                after = (
                    call_with(call, path, padded)
                    + "   # and the lengths as a tensor, where forward needs them"
                )
            elif are_numbers and not step.startswith("['"):
                after = (
                    call_with(call, path, f"torch.tensor({path})")
                    + f"   # forward: {path}.tolist() if need be"
                )
            else:
                after = (
                    call_with(call, path, f"torch.arange(len({path}))")
                    + "   # looked up by number in forward"
                )
            yield path, f"a list of {rows} {what}", after


def _lists(call: Call) -> dict[str, dict[str, list[Leaf]]]:
    """Group the leaves of each list among the arguments by their place in it."""
    groups: dict[str, dict[str, list[Leaf]]] = {}
    for leaf in call.arguments:
        step = re.match(r"([^\[]*)\[(\d+)\]", leaf.path) or re.match(r"(.*?)\[(\d+)\]", leaf.path)
        if step:
            groups.setdefault(step[1], {}).setdefault(step[2], []).append(leaf)
    return groups


@rule("DP208", "opaque-tensors", "error")
def opaque_tensors(evidence: Evidence) -> Iterator[Found]:
    """Tensors inside an object are neither cut nor moved.

    What happens: every replica gets the same object, whose tensors lie on GPU 0: `found at least two
        devices` in replica 1.
    Why: scatter opens tuples, lists, dicts and namedtuples, and no other class: no dataclass, no UserDict.
    Before: model(Batch(x=x, mask=mask))
    After: model({"x": x, "mask": mask})
    Seen by: an argument of another class that holds tensors.
    References: pytorch/pytorch#45840, huggingface/transformers#2818
    """
    for probe, call in evidence.calls:
        for leaf in call.arguments:
            if leaf.tensors_inside and len(call.replicas) > 1 and reaches_all(leaf.path, call):
                yield Found(
                    leaf.path,
                    f"`{leaf.path}` is a {leaf.type} that holds {leaf.tensors_inside[0]}: scatter does "
                    "not look inside",
                    forward_place(evidence),
                    probe,
                    before=call_of(call),
                    after=_opened_call(leaf),
                )


def _opened_call(leaf: Leaf) -> str:
    """Write a call that is given what an object holds; of a mapping, a dict."""
    names = [re.split(r"[ .\[]", inside, maxsplit=1)[0] for inside in leaf.tensors_inside]
    if leaf.is_mapping:
        return f"model(dict({leaf.path}))"
    inside = ", ".join(f"'{name}': {leaf.path}.{name}" for name in dict.fromkeys(names))
    return f"model({{{inside}}})   # forward reads {leaf.path}['{names[0]}']"


@rule("DP209", "unbuildable-container", "error")
def unbuildable_container(evidence: Evidence) -> Iterator[Found]:
    """A container that cannot be built anew from its items.

    What happens: `TypeError: first argument must be callable or None` for a defaultdict, as argument or as
        result; other subclasses of dict or list fail in their own constructor.
    Why: scatter and gather call `type(obj)(items)`.
    Before: model(defaultdict(list, x=x))
    After: model(dict(batch))
    Seen by: an exception of scatter or gather, and a container of another class than dict, list or tuple.
    References: pytorch/pytorch#52597
    """
    for probe, error in failures(evidence):
        call = probe.call
        if call is None or error.stage not in ("scatter", "gather") or error.type != "TypeError":
            continue
        given = call.argument_structures if error.stage == "scatter" else (("the result", _result_of(call)),)
        for name, text in given:
            odd = re.search(r"(\w+)[{\[]", text)
            if odd:
                forward = forward_place(evidence)
                yield Found(
                    name,
                    f"`{name}` is or holds a {odd[1]}, which {error.stage} cannot build anew: "
                    f"{error.message}",
                    *((forward, probe, None, call_of(call), call_of(call, **{name: f"dict({name})"}))
                    if error.stage == "scatter"
                    else _plainly_returned(forward, probe, odd[1], is_whole=odd.start() == 0)),
                )  # fmt: skip


def _plainly_returned(
    forward: Place | None, probe: Probe, kind: str, *, is_whole: bool
) -> tuple[Place | None, Probe, None, str, str]:
    """Write forward's return of a container of another class, and the same with a plain one."""
    end = whole_return(forward) if is_whole else None
    if end is None:
        return forward, probe, None, f"return result   # a {kind}", "return dict(result)"
    function, statement, value = end
    own = function.own(statement, (value, f"dict({function.text(value)})"))
    return own.place, probe, None, own.before, own.after


def _result_of(call: Call) -> str:
    return next((replica.structure for replica in call.replicas if replica.structure), "")


@rule("DP210", "input-changed", "warning")
def input_changed(evidence: Evidence) -> Iterator[Found]:
    """Forward changes an input in place, and the caller sees a part of it.

    What happens: after the call only the rows of chunk 0 are changed.
    Why: chunk 0 is a view of a tensor that is on the first GPU already; the others are copies.
    Before: x.mul_(2)
    After: x = x * 2
    Seen by: the inputs before and after, on one GPU and under DataParallel.
    References: torch/csrc/cuda/comm.cpp, scatter
    """
    for probe in evidence.probes:
        # forward works on copies of these, on one GPU too
        on_host = (
            {leaf.path for leaf in probe.call.arguments if leaf.device == "cpu"} if probe.call else set()
        )
        for change in probe.changes:
            if change.kind == "input" and not change.same and change.path not in on_host:
                found = writing_argument(evidence.scan.forward, top_name(change.path))
                copied = f"{change.path} = {change.path}.clone()"
                own = found[0].whole(found[1], f"{copied}\n{found[0].text(found[1])}") if found else None
                yield Found(
                    change.path,
                    f"forward changes `{change.path}` in place: on one GPU all of it, here chunk 0 only",
                    own.place if own else forward_place(evidence),
                    probe,
                    before=own.before if own else f"{change.path} is changed in place",
                    after=own.after if own else f"{copied}   # before it, in forward",
                )


def _line_that_changes(path: str, evidence: Evidence) -> str:
    """Find forward's statement that changes an argument in place; "" where none is seen to."""
    found = writing_argument(evidence.scan.forward, top_name(path))
    return found[0].text(found[1]) if found else ""


@rule("DP211", "shared-argument", "warning")
def shared_argument(evidence: Evidence) -> Iterator[Found]:
    """Forward writes to an argument that all replicas share.

    What happens: a list or object passed in is written to by n threads: n times the entries, in any order.
    Why: scatter hands what it cannot cut to every replica, the very same object.
    Before: model(x, log)           # forward does log.append(...)
    After: y, entries = model(x)    # return it instead
    Seen by: the argument before and after.
    References: pytorch/pytorch#15993
    """
    for probe in evidence.probes:
        for change in probe.changes:
            if change.kind == "argument" and change.parallel_changed:
                yield Found(
                    change.path,
                    f"`{change.path}` is written by all replicas: {change.single} after a call on one GPU, "
                    f"{change.parallel} under DataParallel",
                    forward_place(evidence),
                    probe,
                    before=_line_that_changes(change.path, evidence) or f"{change.path}...   # in forward",
                    after=f"return ..., entry   # and write {change.path} outside, with what was gathered",
                )
