"""Defaults of a check from `[tool.dpdemo]` of the nearest pyproject.toml."""

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpdemo.errors import UsageError
from dpdemo.files import read_text
from dpdemo.wording import show

_KEYS = ("gpus", "ignore", "select")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What `[tool.dpdemo]` says; None and nothing where it says nothing."""

    gpus: int | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    file: str = ""


def read_defaults(folder: Path) -> Defaults:
    """Read `[tool.dpdemo]` of the nearest pyproject.toml, upwards from a folder.

    Raises:
        UsageError: for a file that is no TOML, an unknown key or a value of another type.

    """
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            try:
                values = tomllib.loads(read_text(file))
            except (OSError, ValueError) as error:
                raise UsageError(f"expected TOML, got {error}", place=str(file)) from error
            return _read(_table(_table(values, "tool", file), "dpdemo", file), file)
    return Defaults()


def _table(values: dict[str, object], name: str, file: Path) -> dict[str, object]:
    found = values.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"expected a table [{name}], got {show(found)}", key=name, place=str(file))
    return found


def _read(values: dict[str, Any], file: Path) -> Defaults:
    for key, value in values.items():
        at: dict[str, str] = {"place": str(file), "key": f"tool.dpdemo.{key}"}
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else ""
            raise UsageError(f"expected one of {', '.join(_KEYS)}, got {key!r}", hint=hint, **at)
        if key == "gpus" and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"expected a number, got {value!r}", **at)
        if key != "gpus" and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
            raise UsageError(f"expected a list of rule codes, got {value!r}", hint='as ["DP3"]', **at)
    lists = {key: tuple(values.get(key, ())) for key in ("select", "ignore")}
    return Defaults(values.get("gpus"), **lists, file=str(file))
