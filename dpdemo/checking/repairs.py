"""Repairs: the user's own line, and what to write in its place; or a short worked example, labelled as one.

A rule hands over its finding with the name of an advice and the user's names. Where the user's line is one
statement of a form that the advice knows, it is rewritten; no other line of the user's is looked at. All else
is an example in these names. Which findings there are never depends on any of this.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dpdemo.checking.evidence import Call, Probe
from dpdemo.checking.templates import TEMPLATES
from dpdemo.results.findings import Place, Severity


@dataclass(frozen=True, slots=True)
class Advice:
    """What a rule knows of the repair: which one, in the user's names; or how a call changes."""

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


class Repair(NamedTuple):
    """Code as it is, and as it should be; "" for the example of the rule's page."""

    before: str = ""
    after: str = ""
    is_example: bool = True


def repair_of(found: Found, page: Repair | None = None, function: str = "") -> Repair:
    """Write the repair of a finding.

    Args:
        found: the finding.
        page: the example of its rule's page, for a finding without an advice.
        function: by which function the program splits, where it makes no DataParallel object.

    """
    advice = found.advice
    if advice.call is not None:
        note = f"   # {advice.name}" if advice.name else ""
        after = call_of(advice.call, function, **advice.names) + note
        return Repair(call_of(advice.call, function), after, is_example=bool(note))
    if not advice.name:
        before, after = (spelled(one, function, calls=True) for one in (page or Repair())[:2])
        return Repair(before, after) if (before, after) != (page or Repair())[:2] else Repair()
    template, names = TEMPLATES[advice.name], _names_for(found, function)
    line = found.place.code if found.place is not None else ""
    filled = template.fill(line, names) if template.fill is not None and line else ""
    if filled:
        return Repair(line, spelled(filled, function), is_example=False)
    before, after = (spelled(one.format(**names), function) for one in (template.before, template.after))
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
        "x": tensors[0].path if tensors else "x",
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
            given.append(name)
    named |= {name: code for name, code in changed.items() if name not in {*given, *named}}
    return split_call(given, named, function)


def split_call(given: Sequence[str], named: Mapping[str, str], function: str) -> str:
    """Write a call of the wrapped model, or of the function that splits in its place."""
    if not function:
        return f"model({', '.join([*given, *(f'{name}={code}' for name, code in named.items())])})"
    inputs = given[0] if len(given) == 1 else f"({', '.join(given)})"
    kwargs = ", ".join(f'"{name}": {code}' for name, code in named.items())
    if function == "data_parallel":
        return f"data_parallel(model, {inputs}" + (f", module_kwargs={{{kwargs}}})" if named else ")")
    return f"parallel_apply(replicas, scatter({inputs}, device_ids){', ...' if named else ''})"


_NESTED = r"\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
"""Parentheses with what is in them, four deep."""
_WRAPPING = re.compile(rf"(?P<name>\b\w+ = )?(?<![A-Za-z])(?:nn\.)?DataParallel(?P<inside>{_NESTED})")
_CALL = re.compile(rf"(?<![\w.])(?:dp|model)(?P<inside>{_NESTED})")


def spelled(text: str, function: str, *, calls: bool = False) -> str:
    """Write code for a program that makes no DataParallel object: with the function that it calls.

    With `calls` a call of the model is one that splits, as on the pages of rules.
    """
    if not function:
        return text

    def split(found: re.Match[str]) -> str:
        given, options = _arguments(found["inside"])
        model = _WRAPPING.sub(lambda inner: inner["inside"][1:-1], given[0] if given else "model")
        if function == "data_parallel":
            named = "".join(f", {name}={code}" for name, code in options.items())
            return f"{'result = ' * bool(found['name'])}data_parallel({model}, x{named})"
        if "dim" in options:
            return f"scatter(x, device_ids, dim={options['dim']})"
        return f"{'replicas = ' * bool(found['name'])}replicate({model}, device_ids)"

    text = _WRAPPING.sub(split, text)
    if calls:
        text = _CALL.sub(lambda found: split_call(*_arguments(found["inside"]), function), text)
    return re.sub(r"\bdp\b", "model", re.sub(r"\b(model|dp)\.module\b", "model", text))


def _arguments(inside: str) -> tuple[list[str], dict[str, str]]:
    """Read the arguments of a call, positional and named, each as it is written."""
    try:
        call = ast.parse(f"f{inside}", mode="eval").body
    except SyntaxError:
        return [inside[1:-1]], {}
    assert isinstance(call, ast.Call)  # noqa: S101 - it was written so
    named = {one.arg or "**kwargs": ast.unparse(one.value) for one in call.keywords}
    return [ast.unparse(one) for one in call.args], named
