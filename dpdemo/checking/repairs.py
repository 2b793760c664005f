"""Repairs: the user's own line, and what to write in its place; or a short worked example, labelled as one.

A rule hands over its finding with the name of an advice and the user's names. Where the user's line is one
statement of a form that the advice knows, it is rewritten; no other line of the user's is looked at. All else
is an example in these names. Which findings there are never depends on any of this.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dpdemo.checking.evidence import Call, Probe
from dpdemo.checking.templates import TEMPLATES
from dpdemo.results.findings import Place, Severity


@dataclass(frozen=True, slots=True)
class Advice:
    """The repair that a rule advises: an entry of the table, in the user's names; or a changed call."""

    name: str = ""
    """Its key in the table; "" is the example of the rule's page."""
    names: Mapping[str, str] = field(default_factory=dict)
    call: Call | None = None
    """The call whose arguments change: each that is in `names` to the code there."""


def advise(name: str, /, **names: str) -> Advice:
    """Advise a repair of the table, with the user's names."""
    return Advice(name, names)


def change_call(call: Call, note: str = "", /, **changed: str) -> Advice:
    """Advise other code for some arguments of a call; a note tells what else is to be done."""
    return Advice(note, changed, call)


@dataclass(frozen=True, slots=True)
class Found:
    """A finding as a rule hands it over; the registry adds the rule's code and the repair."""

    subject: str
    message: str
    place: Place | None = None
    probe: Probe | None = None
    severity: Severity | None = None
    advice: Advice = field(default_factory=Advice)
    set_at: Place | None = None
    """Where the attribute that it is about is set, if that is another line."""
    symptoms: tuple[str, ...] = ()
    """The symptoms that it is about, beside those of its rule."""
    explains: tuple[str, ...] = ()
    """The symptoms that it explains, a note too, beside those of its rule."""


class Repair(NamedTuple):
    """Code as it is, and as it should be; "" for the example of the rule's page."""

    before: str = ""
    after: str = ""
    is_example: bool = True


def repair_of(found: Found, function: str = "") -> Repair:
    """Write the repair of a finding.

    Args:
        found: the finding; without an advice its repair is the example of its rule's page.
        function: the function by which the program splits, where it makes no DataParallel object.

    """
    advice = found.advice
    if advice.call is not None:
        note = f"   # {advice.name}" if advice.name else ""
        after = call_of(advice.call, function, **advice.names) + note
        return Repair(call_of(advice.call, function), after, is_example=bool(note))
    if not advice.name:
        return Repair()
    template, names = TEMPLATES[advice.name], _names_for(found, function)
    line = found.place.code if found.place is not None else ""
    filled = template.fill(line, names) if template.fill is not None and line else ""
    if filled:
        return Repair(line, _unwrapped(filled, function), is_example=False)
    before, after = (_unwrapped(code.format(**names), function) for code in (template.before, template.after))
    return Repair(before or line, after)


def _names_for(found: Found, function: str) -> dict[str, str]:
    """List what an example may name: the call, the first tensor among its arguments, and the rule's own."""
    call = found.probe.call if found.probe is not None else None
    tensors = call.tensor_arguments if call is not None else ()
    given = call_of(call, function) if call is not None else split_call(["x"], {}, function)
    plain = call_of(call) if call is not None else "model(x)"
    function = found.place.function if found.place is not None else ""
    return {
        "call": given,
        "plain": plain if function else plain.replace("model(", "model.module(", 1),
        "x": _as_code(tensors[0].path) if tensors else "x",
        "in_forward": "yes" if function == "forward" else "",
        "in_init": "yes" if function == "__init__" else "",
        "result": "",
        **found.advice.names,
    }


# the call


def call_of(call: Call, function: str = "", **changed: str) -> str:
    """Write a call with its arguments' own names: `model(x, mask=mask.expand(len(x), -1))`."""
    given, named = [], dict[str, str]()
    for name, _ in call.argument_structures:
        if name in changed or named:  # none may follow by position
            named[name] = changed.get(name, name)
        else:
            given.append(_as_code(name))
    named |= {name: code for name, code in changed.items() if name not in {*given, *named}}
    return split_call(given, named, function)


def _as_code(path: str) -> str:
    """Write an argument's path, which has no name where forward takes any number of them."""
    return re.sub(r"\bargument (\d+)", r"x\1", path)


def split_call(given: Sequence[str], named: Mapping[str, str], function: str) -> str:
    """Write a call of the wrapped model, or of the function that splits in its place."""
    if not function:
        return f"model({', '.join([*given, *(f'{name}={code}' for name, code in named.items())])})"
    inputs = given[0] if len(given) == 1 else f"({', '.join(given)})"
    kwargs = ", ".join(f'"{name}": {code}' for name, code in named.items())
    if function == "data_parallel":
        return f"data_parallel(model, {inputs}" + (f", module_kwargs={{{kwargs}}})" if named else ")")
    return f"parallel_apply(replicas, scatter({inputs}, device_ids){', ...' if named else ''})"


def _unwrapped(code: str, function: str) -> str:
    """Write code for a program that makes no DataParallel object: its model has no `module`."""
    return re.sub(r"\b(model|dp)\.module\b", "model", code) if function else code
