"""Training inside of forward: gradients touched there, and parameters changed: DP311, DP313."""

import re
from collections.abc import Iterator

from dpdemo.checking.errors import tells
from dpdemo.checking.evidence import Evidence, Probe, StateChange, WriteStatement
from dpdemo.checking.fills import after_the_call
from dpdemo.checking.questions.failures import questions_for_parameters
from dpdemo.checking.questions.results import is_off
from dpdemo.checking.questions.state import changes_of, gets_other_data, place_of
from dpdemo.checking.questions.words import attribute_at, listed
from dpdemo.checking.registry import rule
from dpdemo.checking.repairs import Advice, Hit, advise
from dpdemo.results.findings import Severity


@rule("DP311", "gradients-in-forward", "error", explains=("parameters", "raises", "difference"))
def gradients_in_forward(evidence: Evidence) -> Iterator[Hit]:
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
        backward = [event for event in call.events if event.kind == "backward"]
        for event in backward:
            what = (
                f"forward goes backward in each of the {len(call.replicas)} replicas: the model's gradients "
                "receive each one's"
            )
            yield Hit("gradients", what, event.place, probe)
        for text in () if backward else call.warnings:  # what else touches gradients goes with it
            if "zero_grad() from a module created with nn.DataParallel" in text:
                yield Hit("zero_grad", "`zero_grad()` in forward has no effect in replicas", None, probe)
            elif ".grad attribute of a Tensor that is not a leaf" in text:
                what = "`.grad` of a parameter is None in replicas: there it is a copy"
                yield Hit(".grad", what, None, probe)


@rule("DP313", "parameter-changed", "error", symptoms=("parameters",), of_training=True)
def parameter_changed(evidence: Evidence) -> Iterator[Hit]:
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
        if change.parallel_changed or (gets_other_data(change) and not _is_of_a_list(change, probe))
    ]
    shortened = {f"{path}.weight" for path, _ in evidence.scan.shortened}
    of_tables = [probe for probe, change in changed if change.path in shortened]
    refused = [] if changed else list(_refused(evidence))
    if of_tables or (shortened and refused):
        yield _shortened(of_tables[0] if of_tables else refused[0].probe, evidence)
    else:
        yield from refused
    by_line: dict[object, list[tuple[Probe, StateChange]]] = {}
    for probe, change in changed:
        if change.path not in shortened:
            is_silent = gets_other_data(change) and change.written.place
            key = change.written.place if is_silent else change.path
            by_line.setdefault((key, str(probe)), []).append((probe, change))
    for found in by_line.values():
        yield _changed_in_place([item for _, item in found], found[0][0], evidence)


def _is_of_a_list(change: StateChange, probe: Probe) -> bool:
    """Whether forward gets a parameter by asking for all of them, which replicas do not have."""
    return not change.written.text and any(map(questions_for_parameters, probe.calls))


def _changed_in_place(alike: list[StateChange], probe: Probe, evidence: Evidence) -> Hit:
    """Report parameters that a line of forward changes; a note where all is as on one GPU."""
    change, paths = alike[0], [item.path for item in alike]
    runs = not any(call.errors for _, call in evidence.calls)
    is_as_alone = change.same and change.parallel_changed and runs and not is_off(probe)
    reaches = (
        "only replica 0's change, made with chunk 0, reaches the model"
        if change.parallel_changed
        else "the replica that holds the change is thrown away"
    )
    what = f"forward changes the parameter{'s' * (len(paths) > 1)} {listed(paths)} in place: {reaches}"
    advice = _outside(attribute_at(change.path, "model.module"), change.written)
    severity: Severity | None = "info" if is_as_alone else None
    explains, place = _explained(paths, evidence), place_of(change)
    return Hit(",".join(paths), what, place, probe, severity, advice, change.place, explains=explains)


def _explained(paths: list[str], evidence: Evidence) -> tuple[str, ...]:
    """List the symptoms of changes of some parameters: that they are lost, and what autograd refuses."""
    errors = (error for _, call in evidence.calls for error in call.errors if tells("DP313", error))
    return (*(f"assigned {path}" for path in paths), *(error.symptom for error in errors))


def _refused(evidence: Evidence) -> Iterator[Hit]:
    """Report replicas that autograd has not let change a parameter, or freeze it."""
    for probe, call in evidence.calls:
        for error in call.errors:
            if tells("DP313", error):
                freezes = re.search("requires_grad flags", error.message) is not None
                what = (
                    "forward freezes a parameter, which replicas hold as the result of a broadcast"
                    if freezes
                    else "forward changes a parameter in place, which replica 0 holds as a view"
                )
                advice, explains = _outside("model.module"), (error.symptom,)
                yield Hit(str(error.place), what, error.place, probe, advice=advice, explains=explains)


def _outside(there: str, written: WriteStatement = WriteStatement()) -> Advice:  # noqa: B008 - it is frozen
    """Advise to change a parameter after the call."""
    code = "with torch.no_grad():   # after the call, on what was gathered\n    {there} ..."
    return advise(code, fill=after_the_call if written.stands_alone else None, there=there)


def _shortened(probe: Probe | None, evidence: Evidence) -> Hit:
    """Tell of embeddings with a `max_norm`."""
    paths = [path for path, _ in evidence.scan.shortened]
    is_single = len(paths) == 1
    what = (
        f"{listed(paths)} {'has' if is_single else 'have'} a max_norm, by which forward shortens rows of "
        f"{'its parameter' if is_single else 'their parameters'} in place: replicas shorten rows of copies"
    )
    place = evidence.scan.shortened[0][1]
    advice = advise(
        "{name} = nn.Embedding(...)   # without max_norm; and after optimizer.step():\n"
        "{there}.weight.data.renorm_(2, 0, max_norm)",
        name=attribute_at(paths[0]),
        there=attribute_at(paths[0], "model.module"),
    )
    weights = [f"{path}.weight" for path in paths]
    explains = _explained(weights, evidence)
    return Hit(",".join(weights), what, place, probe, advice=advice, explains=explains)
