"""Making a checked config: from YAML, from keyword arguments, or from both.

Nothing here needs torch. The YAML reader itself is imported only when there is a file to read.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Unpack

from dpdemo.config.checks import check_together
from dpdemo.config.fields import KEYS, Config, Keys
from dpdemo.config.kinds import unknown_key
from dpdemo.errors import placed

__all__ = ["Keys", "load_config", "make_config", "read_values", "resolve", "showing_keys"]

Function = TypeVar("Function", bound=Callable[..., object])


def make_config(values: Mapping[str, Any], where: Mapping[str, str] | None = None) -> Config:
    """Check values and freeze them.

    Args:
        values: of any keys.
        where: the file and line of each key that comes from a file.

    Raises:
        UsageError: for the first bad key, with what was expected and what was got.

    """
    where = where or {}
    for name in values:
        if name not in KEYS:
            raise unknown_key(name, KEYS, where.get(name, ""))
    with placed(where):
        config = Config(**values)
        check_together(config)
    return config


def showing_keys(function: Function) -> Function:
    """List every key with its default in the signature of a function with `**overrides`.

    `help(dpdemo.simulate)` and the Tab key of a notebook then show `gpus` and `batch_size`.
    """
    signature = inspect.signature(function)
    keys = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=KEYS[name].default, annotation=kind)
        for name, kind in Keys.__annotations__.items()
    ]
    others = [*signature.parameters.values()][:-1]
    vars(function)["__signature__"] = signature.replace(parameters=[*others, *keys])
    return function


@showing_keys
def load_config(path: str | os.PathLike[str], **overrides: Unpack[Keys]) -> Config:
    """Read a YAML config; keyword arguments win over the file.

    Args:
        path: the file.
        overrides: keys of the config, such as `batch_size=64`.

    Returns:
        The config, checked whole.

    Raises:
        UsageError: if the file cannot be read, is not YAML, or holds anything but a valid config.

    """
    return _loaded(path, overrides)


def _loaded(path: str | os.PathLike[str], overrides: Mapping[str, object]) -> Config:
    values, where = read_values(path)
    return make_config(
        {**values, **overrides}, {key: line for key, line in where.items() if key not in overrides}
    )


def read_values(path: str | os.PathLike[str]) -> tuple[dict[str, object], dict[str, str]]:
    """Read the keys of a config file, unchecked, and the file and line of each.

    Raises:
        UsageError: if the file cannot be read or is not a YAML mapping with text keys.

    """
    from dpdemo.config.yamlfile import read_mapping

    return read_mapping(Path(path))


def resolve(config: Config | str | os.PathLike[str] | None, overrides: Mapping[str, object]) -> Config:
    """Make one checked Config of the arguments of a function of the Python API.

    Raises:
        UsageError: if the result is not valid.

    """
    if config is None or isinstance(config, Config):
        return make_config({**(config.values() if config else {}), **overrides})
    return _loaded(config, overrides)
