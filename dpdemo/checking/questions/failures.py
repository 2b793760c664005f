"""The error that DataParallel raised, and its cause inside the replica."""

import re
from collections.abc import Iterator

from dpdemo.checking.errors import NOTHING_THERE, is_of_devices, tells
from dpdemo.checking.evidence import Call, Event, Evidence, Holding, KeepingHook, Probe, RaisedError

_OF_OTHER_THINGS = {"StopIteration", "AttributeError", "NameError", "ImportError", "ModuleNotFoundError",
                    "NotImplementedError", "OutOfMemoryError", "RecursionError"}  # fmt: skip


def failures(evidence: Evidence) -> Iterator[tuple[Probe, RaisedError]]:
    """List every exception seen under DataParallel, of each replica and of each step, and of rehearsals."""
    for probe in evidence.probes:
        seen: list[RaisedError] = []
        for call in probe.calls:
            seen += call.errors
            if call.raised is not None and call.raised.replica is None:
                seen.append(call.raised)
        if probe.raised is not None and not probe.calls:
            seen.append(probe.raised)
        if probe.gather_rehearsal is not None:
            seen.append(probe.gather_rehearsal)
        yield from ((probe, error) for error in seen)


def gather_failures(evidence: Evidence) -> Iterator[tuple[Probe, Call, RaisedError]]:
    """List what gather refused, in a run or in a rehearsal."""
    for probe, error in failures(evidence):
        if error.stage == "gather" and probe.call is not None:
            yield probe, probe.call, error


def may_be_of_sizes(error: RaisedError) -> bool:
    """Return whether an exception can come of a tensor that was cut: not one of devices or missing names."""
    return not is_of_devices(error.message) and error.type not in _OF_OTHER_THINGS


def crossed_devices(evidence: Evidence) -> Iterator[tuple[Probe, RaisedError]]:
    """List the two-device errors of replicas; a plain call on one GPU had none."""
    for probe, error in failures(evidence):
        if error.stage == "replica" and error.replica is not None and is_of_devices(error.message):
            yield probe, error


def draws_its_own(probe: Probe) -> bool:
    """Whether replicas draw from generators of the program's, which forward may seed."""
    return any(event.kind == "generator" for call in probe.calls for event in call.events)


_ASKED = ("named_parameters", "requires_grad_", "state_dict")


BY_NAME = re.compile(r"parameters\(|state_dict\(")
"""A line of the user's that asks for parameters itself."""


def questions_for_parameters(call: Call) -> list[Event]:
    """List where replicas asked for parameters, or to freeze them, other than by `zero_grad()`."""
    asked = (event for event in call.events if event.kind in _ASKED)
    return [event for event in asked if not (event.place and "zero_grad(" in event.place.code)]


def comes_of_no_parameters(error: RaisedError, call: Call | None) -> bool:
    """Return whether an error is what becomes of no parameters, in a function that has asked for them."""
    if tells("DP308", error):
        return True
    if call is None or not re.search(NOTHING_THERE, f"{error.type}: {error.message}"):
        return False
    # a package that the line calls may have asked, and knows what to do
    asked = [
        parameter.place
        for parameter in questions_for_parameters(call)
        if parameter.place and BY_NAME.search(parameter.place.code)
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


def numbers_for_tensors(probe: Probe, call: Call) -> Iterator[str]:
    """List the parts of a result that are a tensor on one GPU, and the number 0 where none was summed."""
    if questions_for_parameters(call):
        alone = {leaf.path for leaf in probe.single.output if leaf.is_tensor}
        parts = (leaf for replica in call.replicas for leaf in replica.output or ())
        odd = (leaf.path for leaf in parts if leaf.path in alone and leaf.type in {"int", "float"})
        yield from dict.fromkeys(odd)


def names(error: RaisedError, name: str, *, is_bare: bool = False) -> bool:
    """Whether the user's functions that an exception went through name an attribute.

    Not the lines alone: what was at fault may have got another name a line before, as in a loop over it.
    """
    name = re.escape(name)
    pattern = rf"\b{name}\b" if is_bare else rf"\.{name}\b|['\"]{name}['\"]"
    return re.search(pattern, error.source) is not None


def reads_in_vain(error: RaisedError, kept: KeepingHook) -> bool:
    """Whether a replica failed over what a hook keeps: on the original, and no replica has it."""
    is_of_names = error.type in {"AttributeError", "KeyError", "IndexError", "TypeError"}
    return error.stage == "replica" and is_of_names and any(names(error, name) for name in kept.names)


def looks_up_in_vain(error: RaisedError, held: Holding) -> bool:
    """Whether a replica failed to find its own module or parameter among keys of the original's."""
    is_of_keys = held.kind == "keyed" and error.type == "KeyError"
    return error.stage == "replica" and is_of_keys and names(error, held.name)
