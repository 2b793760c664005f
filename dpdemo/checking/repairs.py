"""Repairs: the user's own line, and what to write in its place; or a short worked example, labelled as one.

A rule hands over its finding with an advice. Where the user's line is one statement of a form that the advice
can fill (`fills.py`), it is rewritten; no other line of the user's is read. All else is an example in the
user's names. Which findings there are never depends on any of this.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dpdemo.checking.evidence import Call, Probe
from dpdemo.checking.fills import Fill
from dpdemo.results.findings import Place, Severity


@dataclass(frozen=True, slots=True)
class Advice:
    """The repair that a rule advises: an example in the user's names, or a changed call."""

    after: str = ""
    """The example, with `names` in braces; "" is that of the rule's page. Of a changed call a note."""
    before: str = ""
    """The code that the example replaces; "" for the user's own line."""
    fill: Fill | None = None
    """Rewrites the user's line; "" where the line is of another form."""
    names: Mapping[str, str] = field(default_factory=dict)
    call: Call | None = None
    """The call whose arguments change: each that is in `names` to the code there."""


def advise(after: str = "", /, *, before: str = "", fill: Fill | None = None, **names: str) -> Advice:
    """Advise an example, with the user's names; without one that of the rule's page, for the user's line."""
    return Advice(after, before, fill, names)


def change_call(call: Call, note: str = "", /, **changed: str) -> Advice:
    """Advise other code for some arguments of a call; a note tells what else is to be done."""
    return Advice(note, names=changed, call=call)


@dataclass(frozen=True, slots=True)
class Hit:
    """A finding as a rule hands it over; the registry adds the rule's code and the repair."""

    subject: str
    message: str
    place: Place | None = None
    probe: Probe | None = None
    severity: Severity | None = None
    advice: Advice | None = None
    """The repair; None is the example of the rule's page."""
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


def repair_of(found: Hit, page: str = "", function: str = "") -> Repair:
    """Write the repair of a finding.

    Args:
        found: the finding; without an advice its repair is the example of its rule's page.
        page: the repaired code of the rule's page, where `x` is the first tensor among the arguments.
        function: the function by which the program splits, where it makes no DataParallel object.

    """
    advice = found.advice
    if advice is None:
        return Repair()
    if advice.call is not None:
        note = f"   # {advice.after}" if advice.after else ""
        after = call_of(advice.call, function, **advice.names) + note
        return Repair(call_of(advice.call, function), after, is_example=bool(note))
    names = {**_names_for(found, function), **advice.names}
    line = found.place.code if found.place is not None else ""
    filled = advice.fill(line, names) if advice.fill is not None and line else ""
    if filled:
        return Repair(line, _unwrapped(filled, function), is_example=False)
    after = advice.after.format(**names) or re.sub(r"\bx\b", names["x"], page)
    return Repair(advice.before.format(**names) or line, _unwrapped(after, function))


def _names_for(found: Hit, function: str) -> dict[str, str]:
    """List what an example may name: the call, and the first tensor among its arguments."""
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


# advices of several rules

FEATURES = advise(
    "return h   # in forward: what has a row for each sample\nh = {call}; ...   # outside, on all rows"
)
TO_ITS_DEVICE = advise("....to({x}.device)   # every tensor but the inputs, where it is used")


def full_batches(size: int, full: int, *, drop_last: bool) -> Advice:
    """Advise another batch size for a DataLoader."""
    drop = ", drop_last=True" if drop_last else ""
    return advise(f"DataLoader(data, batch_size={full}{drop})", before=f"DataLoader(data, batch_size={size})")


def without(what: str) -> Advice:
    """Advise a result that leaves something out."""
    return advise("return y   # without {what}, which is known outside", what=what)


def of_any_rows(place: Place | None, probe: Probe) -> Advice | None:
    """Advise the rows of the chunk where a line names those of the batch."""
    if place is None or str(probe.batch_size) not in place.code:
        return None
    return advise("{x}.size(0)   # the rows of this chunk, where the line counts on those of the batch")


def first_call(call: str = "") -> Advice:
    """Advise a plain call before the model is wrapped."""
    before = "model = nn.DataParallel(model)"
    names = {"call": call} if call else {}
    return Advice("{call}   # one plain call first\n" + before, before, names=names)


def padded(what: str) -> Advice:
    """Advise rows of one length for samples that cannot be cut by rows."""
    return advise(
        "# {what} cannot be cut by rows: pad it to (samples, longest, ...), with a mask for each sample,\n"
        "# or give each GPU samples of its own: DistributedDataParallel",
        before="{call}",
        what=what,
    )
