"""Reading a YAML mapping safely, with the line of each key.

ruamel.yaml speaks YAML 1.2: `1e-3` is a number and `no` is text. Its safe constructor builds plain values
only, so a Python tag is refused, and nothing that a document names is ever imported.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpdemo.errors import UsageError
from dpdemo.reading import read_bytes
from dpdemo.wording import show_key

MAX_BYTES = 1 << 16
"""A config is a dozen lines; a larger file is some other file, and YAML in pure Python takes 18 s a MiB."""

_EXAMPLE = "write `key: value` lines, such as `batch_size: 30`"
_MAP, _TEXT, _NULL, _MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("map", "str", "null", "merge"))


def read_mapping(path: Path) -> tuple[dict[str, object], dict[str, str]]:
    """Read the mapping in a file, and where each key stands as `file:line`.

    Raises:
        UsageError: if the file cannot be read, is not UTF-8, or is not one YAML mapping with text keys.

    """
    return parse_mapping(_read_text(path), str(path))


def parse_mapping(text: str, name: str) -> tuple[dict[str, object], dict[str, str]]:
    """Read the mapping in a text that came from `name`.

    Raises:
        UsageError: if it is not one YAML mapping with text keys.

    """
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import MappingNode, ScalarNode

    yaml = YAML(typ="safe", pure=True)
    root = _guard(yaml.compose, text, name, "")
    if root is None or root.tag == _NULL:
        raise UsageError(
            f"expected a mapping of config keys, got an empty file - at {name}",
            hint="write at least one key, such as `batch_size: 30`",
        )
    if root.tag != _MAP or not isinstance(root, MappingNode):
        raise _not_a_mapping(root, name)
    _refuse_merges(root, name)
    values: dict[str, object] = {}
    where: dict[str, str] = {}
    for key, value in root.value:
        at = name + _line(key)
        if key.tag != _TEXT or not isinstance(key, ScalarNode):
            raise UsageError(f"expected text as a key, got {_kind(key)} - at {at}", hint=_EXAMPLE)
        if key.value in values:
            raise UsageError(
                f"expected each key once, got {show_key(key.value)} a second time - at {at}",
                hint=f"it first stands at {where[key.value]}; remove one of the two lines",
            )
        values[key.value] = _guard(yaml.constructor.construct_document, value, name, _line(value))
        where[key.value] = at
    return values, where


def _guard(read: Callable[[object], object], source: Any, name: str, line: str) -> Any:
    """Call into ruamel and turn whatever it raises into our error."""
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of legal oddities, such as an anchor used twice
            return read(source)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = str(error.problem or error.context).partition("\n")[0][:120]
        problem = problem if problem.isprintable() else repr(problem)
        raise _broken(problem, f"{name}:{mark.line + 1}" if mark else name + line) from None
    except ReaderError as error:
        line = f":{source.count(chr(10), 0, error.position) + 1}"
        raise UsageError(
            f"expected text, got the control character U+{error.character:04X} - at {name}{line}",
            hint="is this a binary file? a config is plain text",
        ) from None
    except RecursionError:
        raise UsageError(
            f"expected a flat mapping, got values nested too deep - at {name}{line}", hint=_EXAMPLE
        ) from None
    except Exception as error:  # noqa: BLE001 - ruamel lets slips of many types through on odd scalars
        got = f"broken YAML ({type(error).__name__})" if isinstance(source, str) else _kind(source)
        raise UsageError(
            f"expected YAML that can be read, got {got} - at {name}{line}", hint=_EXAMPLE
        ) from None


def _line(node: Any) -> str:
    return f":{node.start_mark.line + 1}"


def _kind(node: Any) -> str:
    """Name what a node holds: a list, or a scalar with its text."""
    kind = str(node.tag).rpartition(":")[2]
    known = {"seq": "a list", "map": "a mapping", "str": "text"}.get(kind, f"!!{kind}")
    if not isinstance(node.value, str):
        return known
    return f"{node.value if len(node.value) <= 40 else node.value[:37] + '...'!r} ({known})"


def _not_a_mapping(root: Any, name: str) -> UsageError:
    if not str(root.tag).startswith("tag:yaml.org,2002:") or "python/" in str(root.tag):
        return _refused_tag(str(root.tag), name + _line(root))
    return UsageError(
        f"expected a mapping of config keys, got {_kind(root)} - at {name}{_line(root)}", hint=_EXAMPLE
    )


def _refuse_merges(root: Any, name: str) -> None:
    """Refuse `<<` anywhere: it is no part of YAML 1.2, and nested merges grow exponentially."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node.value, str):
            continue
        seen.add(id(node))
        for child in node.value:
            parts = child if isinstance(child, tuple) else (child,)
            if parts[0].tag == _MERGE:
                raise UsageError(
                    f"expected each key written out, got a merge key `<<` - at {name}{_line(parts[0])}",
                    hint="copy the merged keys to where they are used",
                )
            waiting += parts


def _read_text(path: Path) -> str:
    try:
        data = read_bytes(path, MAX_BYTES)
    except FileNotFoundError:
        hint = _beside(path.parent) or f"the folder {path.parent} holds no YAML file"
        raise UsageError(f"expected a YAML file, got none - at {path}", hint=hint) from None
    except IsADirectoryError:
        raise UsageError(
            f"expected a YAML file, got a directory - at {path}", hint=_beside(path) or "name a file in it"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"expected a readable file, got {reason!r} - at {str(path)!r}",
            hint="check the path, and who may read it",
        ) from None
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"expected a config of at most {MAX_BYTES} bytes, got a larger file - at {path}",
            hint="is this the right file? a config is a dozen lines",
        )
    try:
        return data.decode("utf-8")  # ruamel drops a byte order mark itself
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"expected UTF-8 text, got the byte 0x{data[error.start]:02x} - at {path}:{line}",
            hint="save the file as UTF-8",
        ) from None


def _beside(folder: Path) -> str:
    """Name some YAML files in the folder, for who mistyped one."""
    try:
        found = sorted(other.name for other in folder.glob("*.y*ml"))
    except OSError:
        return ""
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"that folder holds {', '.join(found[:5])}{more}" if found else ""


def _broken(problem: str, at: str) -> UsageError:
    """Turn ruamel's description of a problem into expected, got, where, next step."""
    if "could not determine a constructor for the tag" in problem:
        return _refused_tag(problem.partition("'")[2].rpartition("'")[0], at)
    if "another document" in problem:
        return UsageError(
            f"expected one YAML document, got a second one - at {at}",
            hint="a line `---` begins a new document; keep one",
        )
    return UsageError(
        f"expected YAML, got broken YAML ({problem}) - at {at}",
        hint="indent with spaces, not tabs" if r"'\t'" in problem else _EXAMPLE,
    )


def _refused_tag(tag: str, at: str) -> UsageError:
    short = tag.removeprefix("tag:yaml.org,2002:")
    return UsageError(
        f"expected plain YAML, got the tag {short[:60]!r} - at {at}",
        hint="remove the tag: a config holds numbers, text and lists, and never builds Python objects",
    )
