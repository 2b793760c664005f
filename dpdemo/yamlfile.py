"""Reading a YAML mapping safely, with the line of each key.

ruamel.yaml's safe loader speaks YAML 1.2: duplicate keys are errors, `1e-3` is a number, `no` is text, and
a Python tag is refused.
"""

from pathlib import Path
from typing import Any

from dpdemo.errors import UsageError

MAX_BYTES = 1 << 20
"""A config is a dozen lines; a larger file is some other file."""


def read_mapping(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the mapping in a file, and where each key stands as `file:line`.

    Raises:
        UsageError: if the file cannot be read, is not UTF-8, or is not one YAML mapping with text keys.

    """
    return parse_mapping(_read_text(path), str(path))


def parse_mapping(text: str, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the mapping in a text that came from `name`.

    Raises:
        UsageError: if it is not one YAML mapping with text keys.

    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(text)
        values = yaml.load(text)
    except MarkedYAMLError as error:
        raise _broken(error, name) from None
    except (YAMLError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # ruamel lets its own slips through on odd scalars such as impossible dates
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"expected YAML, got text that cannot be read ({reason[:120]}) - at {name}"
        ) from None
    if values is None:
        raise UsageError(
            f"expected a mapping of config keys, got an empty file - at {name}",
            hint="write at least one key, such as `batch_size: 30`",
        )
    if not isinstance(values, dict):
        raise UsageError(
            f"expected a mapping of config keys, got a {type(values).__name__} - at {name}:1",
            hint="write `key: value` lines, such as `batch_size: 30`",
        )
    where = {
        key.value: f"{name}:{key.start_mark.line + 1}" for key, _ in node.value if isinstance(key.value, str)
    }
    odd = next((key for key in values if not isinstance(key, str)), None)
    if odd is not None:
        raise UsageError(f"expected text as a key, got {str(odd)[:60]!r} - at {where.get(str(odd), name)}")
    return values, where


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise UsageError(f"expected a YAML file, got a directory - at {path}", hint="name a file in it")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"expected a YAML file, got none - at {path}", hint=_beside(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"expected a readable file, got {reason!r} - at {path}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"expected a config of at most {MAX_BYTES} bytes, got a larger file - at {path}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"expected UTF-8 text, got the byte 0x{data[error.start]:02x} - at {path}:{line}",
            hint="save the file as UTF-8",
        ) from None


def _beside(path: Path) -> str:
    try:
        found = sorted(other.name for other in path.parent.glob("*.y*ml"))[:5]
    except OSError:
        found = []
    return f"that folder holds {', '.join(found)}" if found else ""


def _broken(error: Any, name: str) -> UsageError:
    mark = error.problem_mark or error.context_mark
    place = f"{name}:{mark.line + 1}" if mark else name
    problem = str(error.problem or error.context or "broken YAML").partition("\n")[0]
    if problem.startswith("found duplicate key"):
        twice = problem.removeprefix("found ").partition(" with ")[0]
        return UsageError(
            f"expected each key once, got {twice} - at {place}",
            hint="remove one of the two lines",
        )
    if "could not determine a constructor for the tag" in problem:
        tag = problem.partition("'")[2].rpartition("'")[0]
        return UsageError(
            f"expected plain YAML, got the tag {tag[:60]!r} - at {place}",
            hint="tags that build Python objects are refused",
        )
    return UsageError(f"expected YAML, got broken YAML ({problem[:120]}) - at {place}")
