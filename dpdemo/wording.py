"""How a value, a key and a place look in a message: short, and unable to steer a terminal."""

import reprlib
from collections.abc import Mapping

_WIDTH = 80


def show(value: object) -> str:
    """Write a value as its user did, in at most a line, and say what it is where the text may mislead."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        value = list(value)  # a list in the file, frozen by the config
    kind = _KINDS.get(type(value), f" ({type(value).__name__})")
    text = " ".join(_short.repr(value).split())
    return (text if len(text) <= _WIDTH else f"{text[:_WIDTH]}...") + kind


def show_key(key: str) -> str:
    """Quote a key."""
    short = key if len(key) <= 60 else f"{key[:57]}..."
    return f"`{short}`" if short.isprintable() else f"`{short!r}`"


def at(key: str, where: Mapping[str, str]) -> str:
    """Say where a key was set: a line of a file and the key, or the option or argument itself."""
    place = where.get(key)
    if place is None:
        return f"at key {show_key(key)}"
    if place.startswith(("option ", "argument ")):
        return f"at {place}"
    return f"at {place}, key {show_key(key)}"


def as_set_there(hint: str, key: str, where: Mapping[str, str]) -> str:
    """Rewrite `key: value` of a hint into the option or argument, where the key was set by one."""
    place = where.get(key, "")
    if place.startswith("option "):
        return hint.replace(f"`{key}: ", f"`--{key.replace('_', '-')} ")
    return hint.replace(f"`{key}: ", f"`{key}=") if place.startswith("argument ") else hint


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxother = self.maxlong = 60

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write more than 4300 digits, and nobody reads more than twenty
        if x.bit_length() > 200:
            return f"{'-' if x < 0 else ''}2**{x.bit_length() - 1} or more"
        return super().repr_int(x, level)


_short = _Short()
_KINDS = {str: " (text)", int: "", float: "", list: "", dict: " (a mapping)"}
