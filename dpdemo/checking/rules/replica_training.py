"""Training inside of forward: gradients touched there, and parameters changed: DP311, DP313."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.derivatives import asked_for
from dpdemo.checking.evidence import Call, Evidence, Probe, StateChange
from dpdemo.checking.looking import call_of, is_off, listed
from dpdemo.checking.registry import Found, rule
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.aftercall import change_outside, statement_outside
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.handing import own_forward
from dpdemo.checking.rewriting.inplace import written_in_place
from dpdemo.checking.rewriting.outside import after_layers
from dpdemo.checking.rewriting.renorm import shortened_before
from dpdemo.checking.rewriting.weightwrites import line_outside
from dpdemo.checking.source import attribute_of
from dpdemo.checking.statechanges import changes_of, is_of_data
from dpdemo.checking.unregistered import questions_for_parameters
from dpdemo.reports.check import Change

_REFUSED = {
    r"Output \d+ of Broadcast(Backward)? is a view .*inplace": (
        "forward changes a parameter in place, which replica 0 holds as a view"
    ),
    "change requires_grad flags of leaf": (
        "forward freezes a parameter, which replicas hold as the result of a broadcast"
    ),
}


@rule("DP311", "gradients-in-forward", "error")
def gradients_in_forward(evidence: Evidence) -> Iterator[Found]:
    """Gradients are touched inside forward.

    What happens: `zero_grad()` has no effect there, `.grad` is None, and a `backward()` adds to the model's
        gradients once for each replica.
    Why: a replica's parameters are copies that gradients pass through on their way to the model.
    Before: self.zero_grad(); loss.backward()                      # in forward
    After: torch.autograd.grad(loss, [self.fc.weight])             # in forward, or all of it outside
    Seen by: PyTorch's warning, a backward in a replica, or gradients right after forward.
    References: pytorch/pytorch#31768
    """
    for probe, call in evidence.calls:
        for event in call.events:
            if event.kind == "backward":
                own = asked_for(event.place) or after_layers(evidence, call, "loss")
                yield Found(
                    "gradients",
                    f"forward goes backward in each of the {len(call.replicas)} replicas: the model's "
                    "gradients "
                    "receive each one's",
                    event.place,
                    probe,
                    before=event.place.code if event.place else "",
                    after=_NO_LINE if event.place else "",
                    repair=own,
                )
        if any(event.kind == "backward" for event in call.events):
            continue  # what else touches gradients goes with it
        for text in call.warnings:
            if "zero_grad() from a module created with nn.DataParallel" in text:
                what = "`zero_grad()` in forward has no effect in replicas"
                yield Found(
                    "zero_grad",
                    what,
                    probe=probe,
                    place=None,
                    repair=repair_of(_before_the_call(call, evidence)),
                )
            elif ".grad attribute of a Tensor that is not a leaf" in text:
                yield Found(
                    ".grad", "`.grad` of a parameter is None in replicas: there it is a copy", None, probe
                )


_NO_LINE = "...   # no line in forward can: return what it is of, and go backward and step after the call"


def _before_the_call(call: Call, evidence: Evidence) -> tuple[Change, ...]:
    """Write forward without its zero_grad(), and the call with it before."""
    function = own_forward(evidence)
    me = function.node.args.args[0].arg if function else ""
    body = function.node.body if function else []
    lines = [one for one in body if isinstance(one, ast.Expr) and ast.unparse(one) == f"{me}.zero_grad()"]
    if function is None or not lines:
        return ()
    edits = Edits(function.file)
    for one in lines:
        edits.replace(one, "# gradients are set to zero before the call")
    given = call_of(call)
    return (*edits.changes(), Change(None, given, f"model.zero_grad()\n{given}"))


def _is_of_a_list(change: StateChange, probe: Probe) -> bool:
    """Whether forward comes to a parameter by asking for all of them: that is DP308."""
    return not change.written and any(map(questions_for_parameters, probe.calls))


@rule("DP313", "parameter-changed", "error", unless=("DP311",))
def parameter_changed(evidence: Evidence) -> Iterator[Found]:
    """Forward changes a parameter in place.

    What happens: with gradients on, `Output 0 of BroadcastBackward is a view and ... modified inplace`. Where
        none are tracked (no_grad around the call, `.data`, a frozen parameter) the change is made once, by
        replica 0 with chunk 0, in silence.
    Why: replica 0's parameters are the model's own, as views; the others' are copies that are thrown away.
    Before: with torch.no_grad(): self.codebook.mul_(0.99)   # in forward
    After: model.module.update_codebook()                    # after the call
    Seen by: a parameter that forward changes, or this exception. A note where the change is that of one GPU,
        and so are the results.
    References: EPFL-LCN/pub-illing2021-neurips#3
    """
    changed = [
        (probe, change)
        for probe, change in changes_of(evidence, "parameter")
        if change.parallel_changed or (is_of_data(change) and not _is_of_a_list(change, probe))
    ]
    if not changed:
        yield from _refused(evidence)
    shortened = {f"{path}.weight" for path, _, _ in evidence.scan.shortened}
    if tables := [(probe, one) for probe, one in changed if one.path in shortened]:
        yield _shortened(tables[0][0], evidence)
        changed = [(probe, one) for probe, one in changed if one.path not in shortened]
    in_place: list[Repair] = []
    for probe, change in changed:
        own = change_outside(change, evidence, probe.call, [one for other, one in changed if other is probe])
        if own is None and is_of_data(change):
            own = written_in_place(change, evidence)
            if own in in_place:
                continue  # the same lines of another module, or of another parameter
            in_place += [own] if own is not None else []
        yield _changed_in_place(probe, change, evidence, own)


def _changed_in_place(probe: Probe, change: StateChange, evidence: Evidence, own: Repair | None) -> Found:
    """Tell of a parameter that forward changes; a note where all is as on one GPU."""
    runs = all(replica.raised is None for _, call in evidence.calls for replica in call.replicas)
    is_as_alone = change.same and change.parallel_changed and runs and not is_off(probe)
    there = statement_outside(change) if change.written else f"{attribute_of(change.path, 'model.module')}..."
    reaches = (
        "only replica 0's change, made with chunk 0, reaches the model"
        if change.parallel_changed
        else "the replica that holds the change is thrown away"
    )
    return Found(
        change.path,
        f"forward changes the parameter `{change.path}` in place: {reaches}",
        change.place,
        probe,
        "info" if is_as_alone else None,
        before=change.written or f"{attribute_of(change.path)} is changed in forward",
        after=f"{there}   # outside, after the call, under torch.no_grad()",
        repair=own,
    )


def _refused(evidence: Evidence) -> Iterator[Found]:
    """Tell of replicas that autograd has not let change a parameter, or freeze it."""
    for probe, call in evidence.calls:
        for replica in call.replicas:
            error = replica.raised
            told = [what for pattern, what in _REFUSED.items() if error and re.search(pattern, error.message)]
            if error is not None and told:
                own = line_outside(error.place, evidence, call)
                yield Found(str(error.place), told[0], error.place, probe, repair=own)


def _shortened(probe: Probe, evidence: Evidence) -> Found:
    """Tell of embeddings with a `max_norm`."""
    paths = [path for path, _, _ in evidence.scan.shortened]
    one = len(paths) == 1
    what = (
        f"{listed(paths)} {'has' if one else 'have'} a max_norm, by which forward shortens rows of "
        f"{'its parameter' if one else 'their parameters'} in place: replicas shorten rows of copies"
    )
    subject = ",".join(f"{path}.weight" for path in paths)
    return Found(subject, what, None, probe, repair=shortened_before(evidence, probe.call))
