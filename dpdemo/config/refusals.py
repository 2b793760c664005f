"""Errors about one config key: expected, got, and the next step."""

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.config.numbers import INT64_MAX
from dpdemo.errors import UsageError
from dpdemo.wording import show, show_key

if TYPE_CHECKING:
    from dpdemo.config.kinds import Kind


def unknown_key(name: str, known: Iterable[str], place: str = "") -> UsageError:
    """Build the error for a key that the config does not have, with the nearest that it has."""
    alike = name.lower().replace("-", "_")
    near = ["gpus"] if alike == "device_ids" else difflib.get_close_matches(alike, list(known), n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(known)}"
    return UsageError(f"expected a known key, got {show_key(name)}", hint=hint, place=place)


def refused(name: str, value: object, kind: "Kind", default: object, example: str) -> UsageError:
    """Build the error for a value that is not of its key's kind."""
    expected, got = kind.expected, show(value)
    if isinstance(value, tuple) and kind.item is not None:
        place = next(number for number, item in enumerate(value) if not kind.item.accepts(item))
        expected, got = kind.item.expected, f"{show(value[place])} as item {place + 1}"
    elif type(value) is int and 0 < kind.most < value:
        why = f", since PyTorch can number {MAX_GPUS} GPUs" if kind.most <= MAX_GPUS else ""
        expected = f"a whole number of at most {kind.most}{why}"
    hint = _next_step(name, value, kind, default) or f"write for example `{{{name}={example}}}`"
    return UsageError(f"expected {expected}, got {got}", key=name, hint=hint)


def _next_step(name: str, value: object, kind: "Kind", default: object) -> str:
    if value is None:
        return f"leave `{name}` out to get the default, {default}"
    if number := kind.most and _as_number(value):
        slip = "the quotes" if isinstance(value, str) else "the point or exponent"
        return f"write it without {slip}: `{{{name}={number}}}`"
    if name == "gpus":
        if value == 0 and type(value) is int:
            return "for GPU 0 write `{gpus=[0]}`; for the CPU leave `{gpus=}` out"
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}( *, *[0-9]{1,9}){1,15}", value):
            return f"write it as a list: `{{gpus=[{', '.join(re.findall('[0-9]+', value))}]}}`"
    if kind.words and isinstance(value, str):
        others = dict(kind.other_words)
        near = [others[value.lower()]] if value.lower() in others else []
        near = near or difflib.get_close_matches(value, kind.words, n=1)
        return f"did you mean `{near[0]}`?" if near else ""
    return ""


def _as_number(value: object) -> int | None:
    """Return the whole number in a text or float: '30', or 1000.0 from 1e3."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, float) and value.is_integer() and 0 < value < INT64_MAX:
        return int(value)
    return None
