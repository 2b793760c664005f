"""One repair for what the same line does in several parts: the lines behind the call go through them all."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from dpdemo.checking.source import attribute_of
from dpdemo.reports.check import Change, Finding


def for_all_parts(group: Sequence[Finding]) -> tuple[Change, ...]:
    """Write the other changes of a finding with the lines around the call for each part that has it.

    Args:
        group: findings of one line of a class, one for each part of that class; the first is told.

    Returns:
        The changes of the first as they are, where it is alone or the lines of the others are not alike.

    """
    first = group[0]
    alike = {one.subject: one for one in group if _without_call(one) == _without_call(first)}
    parts = [attribute_of(subject.rpartition(".")[0], "model.module") for subject in alike]
    calls = [next((one for one in each.also if one.place is None), None) for each in alike.values()]
    if len(parts) < 2 or any(one is None for one in calls):
        return first.also
    around = [_around(call) for call in calls if call is not None]
    in_words = [
        (head.replace(part, "part"), line, tail.replace(part, "part"))
        for (head, line, tail), part in zip(around, parts, strict=True)
    ]
    if len(set(in_words)) > 1 or in_words[0] == around[0]:
        return first.also
    loop = f"for part in ({', '.join(parts)}):\n"
    head, line, tail = in_words[0]
    lines = [loop + textwrap.indent(text, "    ") if text else "" for text in (head, tail)]
    after = "\n".join(one for one in (lines[0], line, lines[1]) if one)
    return tuple(replace(one, after=after) if one.place is None else one for one in first.also)


def _without_call(finding: Finding) -> object:
    own = [one for one in finding.also if one.place is not None]
    return finding.place, finding.own_before, finding.own_after, tuple(own)


def _around(call: Change) -> tuple[str, str, str]:
    """Take the lines around a call apart: those before it, the call, and those behind it."""
    lines = call.after.splitlines()
    given = call.before.partition(" = ")[2]
    at = next((index for index, one in enumerate(lines) if given and given in one), 0)
    return "\n".join(lines[:at]), lines[at], "\n".join(lines[at + 1 :])
