"""Reading a YAML mapping safely, with the line of each key.

ruamel.yaml speaks YAML 1.2: `1e-3` is a number and `no` is text. Its safe constructor builds plain values
only, so a Python tag is refused, and nothing that a document names is ever imported.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dpdemo.errors import UsageError
from dpdemo.files import read_bytes
from dpdemo.wording import printable, show_key

MAX_BYTES = 1 << 16
"""A config is a dozen lines; a larger file is some other file, and YAML in pure Python takes 18 s a MiB."""
_EXAMPLE = "write `key: value` lines, such as `batch_size: 30`"
_TAG = "tag:yaml.org,2002:"
_Result = TypeVar("_Result")


def read_mapping(path: Path) -> tuple[dict[str, object], dict[str, str]]:
    """Read the mapping in a file, and the `file:line` of each key.

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
    from ruamel.yaml.nodes import MappingNode

    yaml = YAML(typ="safe", pure=True)
    root = _guarded(lambda: yaml.compose(text), name)
    if not isinstance(root, MappingNode) or root.tag != f"{_TAG}map":
        got = "an empty file" if root is None or root.tag == f"{_TAG}null" else _kind(root)
        raise UsageError(f"expected a mapping of config keys, got {got}", place=name, hint=_EXAMPLE)
    values: dict[str, object] = {}
    where: dict[str, str] = {}
    for key, value in root.value:
        place = f"{name}:{key.start_mark.line + 1}"
        if key.tag != f"{_TAG}str" or not isinstance(key.value, str):
            raise UsageError(f"expected text as a key, got {_kind(key)}", place=place, hint=_EXAMPLE)
        if key.value in values:
            raise UsageError(
                f"expected each key once, got {show_key(key.value)} a second time",
                place=place,
                hint=f"remove this line or that of {where[key.value]}",
            )
        if isinstance(value, MappingNode):  # also keeps out merges, which can grow exponentially
            raise UsageError(
                f"expected a value of {show_key(key.value)}, got {_kind(value)}", place=place, hint=_EXAMPLE
            )
        values[key.value] = _guarded(lambda node=value: yaml.constructor.construct_document(node), place)  # type: ignore[misc]
        where[key.value] = place
    return values, where


def _guarded(read: Callable[[], _Result], place: str) -> _Result:
    """Call into ruamel and turn its exceptions into ours, with the line if ruamel knows it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of legal oddities, such as an anchor used twice
            return read()
    except Exception as error:  # noqa: BLE001 - ruamel raises errors of many types for odd input
        problem, context = (getattr(error, name, None) for name in ("problem", "context"))
        text = printable(
            str(problem or context or f"{type(error).__name__}: {error}").partition("\n")[0][:120]
        )
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        if mark and ":" not in place:
            place = f"{place}:{mark.line + 1}"
        hint = "indent with spaces, not tabs" if r"'\t'" in text else _EXAMPLE
        raise UsageError(f"expected YAML, got broken YAML ({text})", place=place, hint=hint) from None


def _kind(node: Any) -> str:
    """Name the content of a node: a list, or a scalar with its text."""
    kind = str(node.tag).removeprefix(_TAG)
    known = {"seq": "a list", "map": "a mapping", "str": "text"}.get(kind, f"!!{printable(kind[:60])}")
    return f"{node.value[:40]!r} ({known})" if isinstance(node.value, str) else known


def _read_text(path: Path) -> str:
    try:
        data = read_bytes(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        got = "none" if isinstance(error, FileNotFoundError) else repr(reason)
        hint = "check the path, and who may read it"
        raise UsageError(f"expected a YAML file, got {got}", place=str(path), hint=hint) from None
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"expected a config of at most {MAX_BYTES} bytes, got a larger file",
            place=str(path),
            hint="is this the right file? a config is a dozen lines",
        )
    try:
        return data.decode("utf-8")  # ruamel drops a byte order mark itself
    except UnicodeDecodeError as error:
        raise UsageError(
            f"expected UTF-8 text, got the byte 0x{data[error.start]:02x}",
            place=f"{path}:{data.count(10, 0, error.start) + 1}",
            hint="save the file as UTF-8",
        ) from None
