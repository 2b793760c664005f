"""The kinds of values that config keys take: which each accepts, how text is read, how others are refused."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Union

from dpdemo.arithmetic.limits import MAX_GPUS, MAX_NODES
from dpdemo.config.gpus import parse_gpus
from dpdemo.config.numbers import INT64_MAX, any_number
from dpdemo.errors import UsageError
from dpdemo.wording import show, show_key


class Kind(NamedTuple):
    """One kind of values.

    Attributes:
        expected: the values that it accepts, in words.
        accepts: whether a value is of this kind.
        read: how the text of an option becomes a value; `accepts` judges the result.
        most: the largest number, where a larger one is refused by it; else 0.
        item: the kind of the items of a list.

    """

    expected: str
    accepts: Callable[[Any], bool]
    read: Callable[[str], object] = str
    most: int = 0
    item: Union["Kind", None] = None


def whole(least: int, most: int = INT64_MAX, expected: str = "") -> Kind:
    """Return the kind of whole numbers from `least` to `most`."""

    def accepts(value: object) -> bool:
        return type(value) is int and least <= value <= most

    named = 0 if expected else most
    return Kind(expected or f"a whole number of {least} or more", accepts, _number, named)


def words(*known: str) -> Kind:
    """Return the kind of these words."""
    *first, last = known
    listed = f"one of {', '.join(known)}" if len(known) > 2 else f"{first[0]} or {last}"
    return Kind(listed, known.__contains__)


def _is_list_of(item: Kind, value: object) -> bool:
    return isinstance(value, tuple) and all(map(item.accepts, value))


def _number(text: str) -> object:
    number = any_number(text)
    return text if number is None else number


def _is_gpus(value: object) -> bool:
    return value == "all" or COUNT.accepts(value) or _is_list_of(ORDINAL, value)


FLAG = Kind(
    "true or false",
    lambda value: isinstance(value, bool),
    lambda text: {"true": True, "false": False}.get(text, text),
)
TEXT = Kind("text", lambda value: isinstance(value, str))
SIZE = whole(1)
COUNT = whole(1, MAX_GPUS)
NODES = whole(1, MAX_NODES)
ROWS = whole(0)
ORDINAL = whole(0, MAX_GPUS - 1, f"an ordinal from 0 to {MAX_GPUS - 1}")
GPUS = Kind(
    "a list of ordinals such as [0, 1, 2], a count such as 3, or `all`",
    _is_gpus,
    parse_gpus,
    most=MAX_GPUS,
    item=ORDINAL,
)


def refused(name: str, value: object, kind: Kind, example: str) -> UsageError:
    """Build the error for a value that is not of its key's kind, with an example of one that is."""
    expected, got = kind.expected, show(value)
    if isinstance(value, tuple) and kind.item is not None:
        place = next(number for number, item in enumerate(value) if not kind.item.accepts(item))
        expected, got = kind.item.expected, f"{show(value[place])} as item {place + 1}"
    elif type(value) is int and 0 < kind.most < value:
        expected = f"a whole number of at most {kind.most}"
    return UsageError(
        f"expected {expected}, got {got}", key=name, hint=f"write for example `{{{name}={example}}}`"
    )


def unknown_key(name: str, known: Iterable[str], place: str = "") -> UsageError:
    """Build the error for a key that the config does not have, with the nearest that it has."""
    alike = name.lower().replace("-", "_")
    near = ["gpus"] if alike == "device_ids" else difflib.get_close_matches(alike, list(known), n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(known)}"
    return UsageError(f"expected a known key, got {show_key(name)}", hint=hint, place=place)
