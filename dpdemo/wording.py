"""Values, keys and counts as messages show them: short, and unable to steer a terminal."""

import re
import reprlib

_WIDTH = 80


def show(value: object) -> str:
    """Write a value as its user did, in at most a line, with its type if the text may mislead."""
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


def counted(number: int, noun: str) -> str:
    """Write `1 call` or `3 calls`, `1 batch` or `3 batches`."""
    ending = "es" if noun.endswith(("tch", "ss")) else "s"
    plural = f"{noun[:-1]}ies" if noun.endswith("py") else noun + ending
    return f"{number} {noun if number == 1 else plural}"


def percent(share: float) -> str:
    """Write a share as `61 %`, `99.6 %` or `100 %`: only what is whole is 100 %."""
    if share >= 1:
        return "100 %"
    digits = f"{100 * share:.3g}"
    return "99.9 %" if digits == "100" else f"{digits} %"


def ms_span(low: float, high: float) -> str:
    """Write `62–83 ms`, or one number where both ends look alike."""
    first, last = _milliseconds(low), _milliseconds(high)
    return f"{first} ms" if first == last else f"{first}–{last} ms"


def _milliseconds(ms: float) -> str:
    if ms < 0.995:
        return f"{ms:.2f}".rstrip("0").rstrip(".")
    return f"{ms:.1f}" if ms < 9.95 else f"{ms:,.0f}"


def printable(text: str) -> str:
    r"""Write what came from outside on one line, unable to steer what shows it: the one way in for it.

    Colours are left out; another control character becomes `\x1b`; what a log of GitHub Actions takes for
    a command (`::error::`) is taken apart. Names, paths and messages go through here before they reach a
    terminal, a log or a page.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escaped(char) for char in _COLOURS.sub("", text))
    return _COMMANDS.sub(r"\1 \2", text) if "::" in text or "##[" in text else text


def harmless(text: str) -> str:
    """Write a message of several lines, each unable to steer what shows it."""
    return "\n".join(map(printable, text.expandtabs().split("\n")))


_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_COMMANDS = re.compile(
    r"(:|##)((?::|\[)(?:add|debug|echo|endgroup|error|group|notice|remove|save|section|set|stop|warning)\b)"
)
"""The commands of GitHub's runner, `::error::` and the older `##[error]`."""


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def fit(text: str, encoding: str) -> str:
    r"""Make text writable in an encoding: plain signs for fine ones, `\xe9` for letters it lacks."""
    if text.isascii():
        return text
    if not encoding.lower().startswith("utf"):
        text = text.translate(_PLAIN)
    return text.encode(encoding, "backslashreplace").decode(encoding)


_PLAIN = str.maketrans("–×→÷─┃█░▏▎▍▌▋▊▉", "-x>/-|#.+++++++")
"""A plain sign for each fine one, as wide as it is, so that tables stay in line."""


def first_line(text: str) -> str:
    """Return the first line of a message, which may have none."""
    return text.partition("\n")[0] or "(no message)"


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
_KINDS = {str: "", int: "", float: "", list: "", dict: " (a mapping)"}
