"""Characters that a stream may not be able to carry, and what to write instead."""

_ASCII = str.maketrans({"–": "-", "×": "x", "→": "->", "÷": "/", "≥": ">="})


def is_unicode(encoding: str) -> bool:
    """Tell whether every character can be written in this encoding."""
    return encoding.lower().startswith("utf")


def fit(text: str, encoding: str) -> str:
    r"""Make text writable in an encoding: plain signs for fine ones, `\xe9` for letters it lacks."""
    if text.isascii():
        return text
    if not is_unicode(encoding):
        text = text.translate(_ASCII)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def printable(text: str) -> str:
    r"""Show a user's text on one line, whatever is in it: a control character becomes `\x1b`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
