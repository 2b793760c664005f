"""Arguments that scatter does not cut, or not as meant: DP207 to DP211."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Leaf, Probe, Raised
from dpdemo.checking.looking import (
    call_of,
    call_with,
    failures,
    forward_place,
    reaches_all,
    result_place,
    top_name,
)
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.handing import Given, handed_over, made_by_forward, numbered
from dpdemo.checking.rewriting.opening import opened
from dpdemo.checking.rewriting.ragged import called_for, padded
from dpdemo.checking.rewriting.results import whole_return
from dpdemo.checking.rewriting.shared import argument_outside
from dpdemo.checking.source import names_in
from dpdemo.checking.writes import writing_argument


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
        for name, what, repair in _whole_batches(probe, call, evidence):
            yield Found(
                name,
                f"`{name}` ({what}) is not cut: each of the {len(call.replicas)} replicas gets all of it",
                forward_place(evidence),
                probe,
                repair=repair,
            )
        for name in _picture_lists(call):
            yield Found(
                name,
                f"`{name}` is a list of {call.rows} tensors: scatter opens it and cuts each along its first "
                "dimension, the channels",
                forward_place(evidence),
                probe,
                repair=_stacked(name, call, evidence),
            )
        if not any(leaf.is_tensor or leaf.tensors_inside or leaf.length for leaf in call.arguments):
            yield Found(
                "no tensor",
                f"no argument is a tensor: each of the {len(call.replicas)} replicas runs on all of them",
                forward_place(evidence),
                probe,
                before=call_of(call),
                after=f"{call_of(call).replace('model(', 'model.module(', 1)}   # there is nothing to split",
            )


def _is_harmless(probe: Probe, call: Call) -> bool:
    return probe.comparison.values_equal is True and call.raised is None


def _picture_lists(call: Call) -> list[str]:
    """Name the arguments that are lists of pictures."""
    if not call.pictures:
        return []
    found = {step[1] for leaf in call.tensor_arguments if (step := re.fullmatch(r"(\w+)\[\d+\]", leaf.path))}
    return sorted(found)


def _stacked(name: str, call: Call, evidence: Evidence) -> Repair:
    """Write a call that is given pictures as one tensor, of which forward makes a list again."""
    shapes = {leaf.shape for leaf in call.tensor_arguments if leaf.path.startswith(f"{name}[")}
    is_even = len(shapes) == 1
    stacked = Given(name, "torch.stack({})", "list({})")
    targets = [path for path, leaves in _lists(call).items() if path != name and _are_dicts(path, leaves)]
    own = called_for(name, targets, call, evidence) if targets else None
    if own is not None:
        return own
    repair = handed_over([stacked], call, evidence) if is_even else padded(name, call, evidence)
    if repair is not None:
        return repair
    one_size = "" if is_even else "padded to one size before: "
    after = call_of(call, **{name: f"torch.stack({name})"})
    return Repair(None, call_of(call), f"{after}   # {one_size}and in forward: {name} = list({name})")


def _are_dicts(path: str, leaves: dict[str, list[Leaf]]) -> bool:
    """Whether a list holds dicts of tensors, such as the targets of pictures."""
    every = [leaf for part in leaves.values() for leaf in part]
    return all(
        re.fullmatch(rf"{re.escape(path)}\[\d+\]\['\w+'\]", leaf.path) and leaf.is_tensor for leaf in every
    )


_ROWS = "[{}[row] for row in rows.tolist()]"
"""Of a list that every replica gets whole, the rows that are its own."""


def _whole_batches(probe: Probe, call: Call, evidence: Evidence) -> Iterator[tuple[str, str, Repair]]:
    """List what is as long as the batch and no tensor: its path, what it is, and what to pass instead."""
    rows = call.rows or probe.batch_size
    if rows < 2:
        return
    fixed = _of_one_length(evidence)
    for leaf in call.arguments:
        if not reaches_all(leaf.path, call) or leaf.path in fixed:
            continue
        if leaf.is_tensor or leaf.tensors_inside:
            continue  # an object with tensors is DP208
        if leaf.length == rows and leaf.type not in ("str", "bytes"):
            yield leaf.path, f"{leaf.type} of {rows}", _array_repair(leaf, call, evidence)
    for path, leaves in _lists(call).items():
        is_of_tensors = any(leaf.is_tensor for part in leaves.values() for leaf in part)
        if path in fixed:
            continue
        if len(leaves) == rows and not is_of_tensors and reaches_all(f"{path}[{rows - 1}]", call):
            first = next(iter(leaves.values()))
            step = first[0].path[len(path) :].partition("]")[2]
            what = first[0].type if not step else "dict" if step.startswith("['") else "lists"
            yield path, f"a list of {rows} {what}", _list_repair(path, leaves, call, evidence)


def _of_one_length(evidence: Evidence) -> set[str]:
    """Name what is as long with another batch: where a batch is as long too, that is chance."""
    lengths: dict[str, set[tuple[int, int]]] = {}
    for probe, call in evidence.calls:
        rows = call.rows or probe.batch_size
        known = [(leaf.path, leaf.length) for leaf in call.arguments if leaf.length is not None]
        for path, length in [*known, *((path, len(one)) for path, one in _lists(call).items())]:
            lengths.setdefault(path, set()).add((rows, length))
    return {
        path
        for path, seen in lengths.items()
        if len({rows for rows, _ in seen}) > 1 and len({length for _, length in seen}) == 1
    }


def _array_repair(leaf: Leaf, call: Call, evidence: Evidence) -> Repair:
    """Write a call that is given an array, or what is like one, as a tensor; rows by number of all else."""
    made = made_by_forward(leaf.path, call, evidence)
    if made is not None:
        return made
    plain = Repair(None, call_of(call), call_with(call, leaf.path, f"torch.as_tensor({leaf.path})"))
    if leaf.type != "ndarray":
        taken = _ROWS if leaf.type in ("list", "tuple", "deque", "UserList") else ""
        return (numbered(leaf.path, taken, call, evidence) if taken else None) or plain
    if leaf.dtype in ("object", "str"):
        return numbered(leaf.path, "{}[rows.cpu().numpy()]", call, evidence) or plain
    back = Given(leaf.path, "torch.as_tensor({})", "{}.cpu().numpy()")
    return handed_over([back], call, evidence) or plain


def _list_repair(path: str, leaves: dict[str, list[Leaf]], call: Call, evidence: Evidence) -> Repair:
    """Write a call that is given a list of numbers as a tensor; of all else the numbers of its rows."""
    every = [leaf for part in leaves.values() for leaf in part]
    are_numbers = all(leaf.type in ("int", "float", "bool") for leaf in every)
    steps = {leaf.path[len(path) :].partition("]")[2] for leaf in every}
    is_even = len({len(part) for part in leaves.values()}) == 1 and not any("'" in step for step in steps)
    if are_numbers and is_even and len({leaf.type for leaf in every}) == 1:
        kind = ", dtype=torch.float64" if every[0].type == "float" else ""
        there = Given(path, f"torch.tensor({{}}{kind})", "{}.tolist()")
        repair = made_by_forward(path, call, evidence) or handed_over([there], call, evidence)
    else:
        repair = numbered(path, _ROWS, call, evidence)
    after = call_with(call, path, f"torch.arange(len({path}))")
    return repair or Repair(
        None, call_of(call), f"{after}   # and forward looks up by number what it stands for"
    )


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
                    repair=opened(leaf, call, evidence),
                )


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
        if error.stage == "gather" and _is_about_a_part(error, call):
            continue  # that is DP402
        given = call.argument_structures if error.stage == "scatter" else (("the result", _result_of(call)),)
        for name, text in given:
            odd = re.search(r"(\w+)[{\[]", text)
            if odd:
                yield Found(
                    name,
                    f"`{name}` is or holds a {odd[1]}, which {error.stage} cannot build anew: "
                    f"{error.message}",
                    forward_place(evidence),
                    probe,
                    repair=_plainly_given(name, call)
                    if error.stage == "scatter"
                    else _plainly_returned(evidence, odd[1], is_whole=odd.start() == 0),
                )
    for probe, call in evidence.calls:
        for name, text in call.argument_structures:
            odd = re.match(r"(\w+)[{\[]", text)
            if odd and call.replicas and _is_lost(name, call):
                after = call_of(call, **{name: f"{'dict' if text[odd.end() - 1] == '{' else 'list'}({name})"})
                what = f"`{name}` is a {odd[1]}, which scatter builds anew without what is in it"
                yield Found(name, what, forward_place(evidence), probe, None, call_of(call), after)


def _is_about_a_part(error: Raised, call: Call) -> bool:
    """Whether gather failed over what a container holds, such as a number, and not over the container."""
    kind = re.match(r"'(\w+)' object is not iterable", error.message)
    leaves = (leaf for replica in call.replicas for leaf in replica.output or ())
    return kind is not None and any(leaf.type == kind[1] and not leaf.is_tensor for leaf in leaves)


def _is_lost(name: str, call: Call) -> bool:
    """Whether something was in an argument, and nothing of it came to any replica."""
    given = [leaf for leaf in call.arguments if leaf.path.startswith((f"{name}[", f"{name}."))]
    received = [leaf for one in call.replicas for leaf in one.inputs if top_name(leaf.path) == name]
    return bool(given) and not any(leaf.path != name for leaf in received)


def _plainly_given(name: str, call: Call) -> Repair:
    """Write a call with a container of another class, and the same with a plain one."""
    return Repair(None, call_of(call), call_of(call, **{name: f"dict({name})"}))


def _plainly_returned(evidence: Evidence, kind: str, *, is_whole: bool) -> Repair:
    """Write forward's return of a container of another class, and the same with a plain one."""
    end = whole_return(result_place(evidence)) if is_whole else None
    if end is None:
        return Repair(None, f"return result   # a {kind}", "return dict(result)")
    function, statement, value = end
    return function.own(statement, (value, f"dict({function.text(value)})"))


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
                    forward_place(evidence),
                    probe,
                    before=f"{change.path} is changed in place",
                    after=f"{copied}   # before it, in forward",
                    repair=own,
                )


def _adds_to(path: str, evidence: Evidence) -> bool:
    """Whether forward's statement makes an argument's new value of the one that it had, as a count does."""
    found = writing_argument(evidence.scan.forward, top_name(path))
    match found:
        case _, ast.AugAssign():
            return True
        case _, ast.Assign(value=value):
            return top_name(path) in names_in(value)
    return False


def _line_that_changes(path: str, evidence: Evidence) -> str:
    """Find forward's statement that changes an argument in place; "" where none is seen to."""
    found = writing_argument(evidence.scan.forward, top_name(path))
    return found[0].text(found[1]) if found else ""


@rule("DP211", "shared-argument", "warning")
def shared_argument(evidence: Evidence) -> Iterator[Found]:
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
            is_lost = change.single_changed and not change.parallel_changed
            if change.kind == "argument" and (change.parallel_changed or is_lost):
                own = argument_outside(top_name(change.path), evidence, probe.call)
                writer = "each replica in a copy of its own" if is_lost else "all replicas"
                yield Found(
                    change.path,
                    f"`{change.path}` is written by {writer}: {change.single} after a call on one GPU, "
                    f"{change.parallel} under DataParallel",
                    forward_place(evidence),
                    probe,
                    "info" if is_lost and not _adds_to(change.path, evidence) else None,
                    before=_line_that_changes(change.path, evidence) or f"{change.path}...   # in forward",
                    after=f"return ..., entry   # by hand; write {change.path} outside, of what was gathered",
                    repair=own,
                )
