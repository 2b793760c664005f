"""Batches of sequences, and where their samples are: DP212, DP214 to DP216."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Probe
from dpdemo.checking.looking import (
    call_of,
    call_with,
    entered_at,
    failures,
    forward_place,
    gather_failures,
    hidden_states,
    is_entered,
    is_hidden_state,
    listed,
    top_name,
)
from dpdemo.checking.methods import functions_like
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import Given, handed_over, own_forward, torch_in
from dpdemo.checking.rewriting.states import state_repair
from dpdemo.checking.source import FUNCTIONS, Function, function_at, tree_of
from dpdemo.reports.check import Place

_STATE_REFUSED = r"Expected hidden(\[\d\])? size|For batched .* hx should"


@rule("DP212", "hidden-state", "error")
def hidden_state(evidence: Evidence) -> Iterator[Found]:
    """An RNN's hidden state has the batch on dimension 1.

    What happens: `Expected hidden[0] size (1, 2, 5), got [1, 8, 5]` in a replica.
    Why: scatter cuts on dimension 0 and the state is (layers, batch, features), `batch_first` or not; a
        state made for the whole batch does not fit a chunk either.
    Before: model(x, h0)                                      # h0: (layers, B, H)
    After: model(x, h0.transpose(0, 1))                       # and back in forward, or make it there from
        x.size(0)
    Seen by: this exception, or another of a replica that got a part of such an argument, which is named.
    References: pytorch/pytorch#7890, pytorch/pytorch#15260
    """
    states = hidden_states(evidence)
    for probe, error in failures(evidence):
        is_refused = re.search(_STATE_REFUSED, error.message)
        if not is_refused and (not states or error.stage == "gather" or "same device" in error.message):
            continue
        given = probe.call.tensor_arguments if probe.call else ()
        names = [leaf.path for leaf in given if probe.call and is_hidden_state(leaf, probe.call)]
        what = (
            f"{listed(names)} {_has(names)} the batch on dimension 1"
            if names
            else "the state is made for the whole batch"
        )
        repair = state_repair(names, probe.call, error.place, evidence)
        subject = ",".join(names) or "hidden"
        yield Found(subject, f"{what}: {error.message}", error.place, probe, repair=repair)


@rule("DP214", "packed-sequence", "error")
def packed_sequence(evidence: Evidence) -> Iterator[Found]:
    """Packed sequences do not survive the split.

    What happens: a PackedSequence as argument: `batch_sizes should always be on CPU`. Packed and unpacked
        in forward:
        `Input tensor at index 1 has invalid shape [2, 5, 4], but expected [2, 6, 4]` when results are
        gathered.
    Why: scatter opens it like any tuple and cuts its parts; and each replica pads to its own longest
        sequence.
    Before: pad_packed_sequence(packed, batch_first=True)
    After: pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
    Seen by: the type of the arguments; or gather's exception in a model that pads without total_length.
    References: pytorch/pytorch#6299, pytorch/pytorch#2312, pytorch/pytorch#31422
    """
    for probe, call in evidence.calls:
        for name, text in call.argument_structures:
            if "PackedSequence(" in text:
                yield Found(
                    name,
                    f"`{name}` is a PackedSequence: scatter cuts its parts apart",
                    forward_place(evidence),
                    probe,
                    repair=_padded(name, call, evidence),
                )
    if evidence.scan.pads_alone:
        for probe, _, error in gather_failures(evidence):
            if "invalid shape" in error.message:
                own = _padded_whole(forward_place(evidence), evidence)
                yield Found(
                    "pad_packed_sequence",
                    "pad_packed_sequence without total_length pads each chunk to its own longest: "
                    f"{error.message}",
                    forward_place(evidence),
                    probe,
                    repair=own,
                )


def _padded(name: str, call: Call, evidence: Evidence) -> Repair:
    """Write a call that is given sequences padded, with their lengths, and forward that packs them again."""
    function = own_forward(evidence)
    utils = "torch.nn.utils.rnn"
    there = f"{utils}.pad_packed_sequence({{}}, batch_first=True)"
    back = f"{utils}.pack_padded_sequence({{}}[0], {{}}[1].cpu(), batch_first=True, enforce_sorted=False)"
    needed = torch_in(function) if function is not None else ""
    packed = handed_over([Given(name, there, back)], call, evidence, needed=needed)
    after = f"{call_of(call, **{name: there.replace('{}', name)})}   # packed again in forward: {back}"
    return packed or Repair(None, call_of(call), after.replace("{}", name))


def _calls(node: ast.Call, name: str) -> bool:
    return ast.unparse(node.func).rpartition(".")[2] == name


def _padded_whole(forward: Place | None, evidence: Evidence) -> Repair | None:
    """Write the line that pads, and the same with the length of the whole input.

    It is looked for in forward, then in its class, and at last in all functions that forward goes into.
    """
    own = function_at(forward)
    if own is None or forward is None:
        return None
    others = (one for one in ast.walk(tree_of(forward.file)) if isinstance(one, FUNCTIONS))
    functions = [own, *functions_like(own), *(Function(forward.file, one) for one in others)]
    functions = [one for one in functions if is_entered(one, evidence)]
    return next((found for one in functions if (found := _padded_in(one, evidence)) is not None), None)


def _padded_in(function: Function, evidence: Evidence) -> Repair | None:
    calls = [
        (statement, node)
        for statement in function.statements()
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(statement, (ast.Assign, ast.Return, ast.Expr))
    ]
    packed = [
        (statement, node) for statement, node in calls if _calls(node, "pack_padded_sequence") and node.args
    ]
    for statement, node in calls:
        if not _calls(node, "pad_packed_sequence") or any(one.arg == "total_length" for one in node.keywords):
            continue
        if not packed and (length := _length_given(function, node, evidence)):
            return function.own(statement, (node, f"{function.text(node)[:-1]}, total_length={length})"))
        if packed:
            packing, pack = packed[0]
            is_first = "batch_first=True" in function.text(pack)
            length = f"{function.text(pack.args[0])}.size({int(is_first)})"
            if not _is_stored(pack.args[0], packing, statement, function):
                return function.own(statement, (node, f"{function.text(node)[:-1]}, total_length={length})"))
            edits = Edits(function.file)
            margin = "\n" + " " * packing.col_offset
            edits.replace(packing, f"total_length = {length}{margin}{function.text(packing)}")
            edits.replace(node, f"{function.text(node)[:-1]}, total_length=total_length)")
            return repair_of(edits.changes())
    return None


def _length_given(function: Function, node: ast.Call, evidence: Evidence) -> str:
    """Write the length of the whole input where a function is given it, or one tensor: that of the tensor."""
    seen = entered_at(function, evidence)
    tensors = [one for one in seen.tensors if one in function.arguments()] if seen is not None else []
    if seen is not None and len(seen.numbers) == 1:
        return seen.numbers[0]
    is_first = any(one.arg == "batch_first" and ast.unparse(one.value) == "True" for one in node.keywords)
    return f"{tensors[0]}.size({int(is_first)})" if len(tensors) == 1 else ""


def _is_stored(value: ast.expr, first: ast.stmt, last: ast.stmt, function: Function) -> bool:
    """Whether it is a name, and a line from the first on, and before the last, gives it another value."""
    between = [one for one in function.statements() if first.lineno <= one.lineno < last.lineno]
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == ast.unparse(value)
        for one in between
        for node in ast.walk(one)
    )


@rule("DP215", "cpu-lengths", "error")
def cpu_lengths(evidence: Evidence) -> Iterator[Found]:
    """Lengths that must be on the CPU reach the replicas on their GPUs.

    What happens: `'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor`, where a
        plain call with the same lengths passes.
    Why: scatter moves every tensor among the arguments to the GPU of its replica.
    Before: pack_padded_sequence(x, lengths)
    After: pack_padded_sequence(x, lengths.cpu())   # in forward
    Seen by: this exception in a replica.
    References: pytorch/pytorch#43227, pytorch/pytorch#13214
    """
    for probe, error in failures(evidence):
        if error.stage == "replica" and error.replica is not None and "1D CPU int64" in error.message:
            code = error.place.code if error.place else ""
            after = re.sub(r"(pack_padded_sequence\([^,]+,\s*)([\w.\[\]]+)", r"\1\2.cpu()", code)
            own = (code, after) if after != code else ("", "")
            what = f"scatter moves the lengths: {error.message}"
            yield Found(str(error.place), what, error.place, probe, None, *own)


@rule("DP216", "other-dimension", "error")
def other_dimension(evidence: Evidence) -> Iterator[Found]:
    """The batch is on another dimension than the one that is cut.

    What happens: a recurrent layer without `batch_first`, a transformer of (time, batch, features): time is
        cut into chunks instead of samples, and each replica reads a piece of every sequence. Results have the
        right shape and wrong numbers, or shapes do not fit.
    Why: scatter and gather use DataParallel's `dim`, 0 if not set, for all arguments alike: time-first `x`
        beside `lengths` or a mask that is batch first must be transposed before the call.
    Before: nn.DataParallel(model)
    After: nn.DataParallel(model, dim=1)   # or batch_first=True, and x.transpose(0, 1) before the call
    Seen by: chunks along that dimension have the results of one GPU, and those that scatter makes have not.
    References: torch/nn/parallel/data_parallel.py, pytorch/pytorch#7890
    """
    for probe, call in evidence.calls:
        dim = probe.comparison.better_dim
        if probe.comparison.batch_dims and not _is_about_a_state(call):
            yield _unlike(probe, call, evidence)
        if dim is None:
            continue
        sizes = {leaf.path: leaf.shape for leaf in call.tensor_arguments}
        name, shape = next(iter(sizes.items()))
        yield Found(
            "dim",
            f"`{name}` of shape {shape} has its samples on dimension {dim}, and is cut along dimension "
            f"{call.dim}: along {dim} the chunks have the results of one GPU",
            forward_place(evidence),
            probe,
            before=f"nn.DataParallel(model, dim={call.dim})" if call.dim else "nn.DataParallel(model)",
            after=f"nn.DataParallel(model, dim={dim})" if dim else "nn.DataParallel(model)",
        )


def _is_about_a_state(call: Call) -> bool:
    """Return whether a replica refused an RNN's state: that is DP212."""
    return any(re.search(_STATE_REFUSED, str(replica.raised)) for replica in call.replicas)


def _unlike(probe: Probe, call: Call, evidence: Evidence) -> Found:
    """Tell of arguments that have the batch on different dimensions, and write the call with all on one."""
    dims = dict(probe.comparison.batch_dims)
    here, there = (
        [path for path, dim in dims.items() if (dim == call.dim) == is_cut] for is_cut in (True, False)
    )
    other = dims[there[0]]
    turn = f"{{}}.transpose({call.dim}, {other})"
    repair = handed_over([Given(path, turn, turn) for path in there], call, evidence, by_keyword=True)
    if repair is None:
        turned = {top_name(path): turn.replace("{}", path) for path in there if top_name(path) == path}
        after = call_of(call, **turned) if turned else call_with(call, there[0], turn.replace("{}", there[0]))
        repair = Repair(None, call_of(call), f"{after}   # and transposed back in forward")
    return Found(
        "dim",
        f"{listed(there)} {_has(there)} the batch on dimension {other} and {listed(here)} on dimension "
        f"{call.dim}: DataParallel cuts all along dimension {call.dim}",
        forward_place(evidence),
        probe,
        repair=repair,
    )


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"
