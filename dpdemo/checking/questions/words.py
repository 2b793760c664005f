"""Names, values and sizes in a sentence."""

import re

from dpdemo.checking.evidence import Value


def result_at(path: str | None) -> str:
    """Name a part of the result in a sentence."""
    return f"the result's `{path}`" if path else "the result"


def listed(names: list[str]) -> str:
    """Write names for a sentence: `a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in dict.fromkeys(names)]
    if len(quoted) > 4:
        return f"{', '.join(quoted[:2])} and {len(quoted) - 2} more"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def sizes_text(sizes: list[int]) -> str:
    """Write the rows of chunks: `2+2+2+1`."""
    return "+".join(map(str, sizes))


def top_name(path: str) -> str:
    """Return the argument that a path begins with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def attribute_at(path: str, me: str = "self") -> str:
    """Write what is at a path of a model: `self.layers[0].weight`."""
    return me + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path.split("."))


def words(value: Value) -> str:
    """Write a value in a few words: `a list of 2`, `a tensor of shape (3,)`, `0.5`."""
    if value.text:
        return value.text
    if value.number is not None:
        return f"{value.number:.4g}"
    if value.shape is not None:
        return f"{article(value.type if value.type == 'array' else 'tensor')} of shape {value.shape}"
    if value.is_absent:
        return "absent"
    if value.length is not None:
        return f"{article(value.type)} of {value.length}"
    inside = ", ".join(f"{name}={words(part)}" for name, part in value.parts)
    return f"{article(value.type)} ({inside})" if inside else article(value.type)


def article(kind: str) -> str:
    """Write the name of a class with its article: `a Linear`, `an Embedding`."""
    return f"an {kind}" if kind.lower().startswith(("a", "e", "i", "o", "u")) else f"a {kind}"
