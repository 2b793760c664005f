"""Making a checked config: from YAML, from keyword arguments, or from both.

Nothing here needs torch, and ruamel.yaml is imported only when there is a file to read.
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack

from dpdemo.config.checks import check_together
from dpdemo.config.fields import KEYS, Config, Keys
from dpdemo.config.kinds import unknown_key
from dpdemo.config.yamlfile import read_mapping
from dpdemo.errors import UsageError, placed

__all__ = ["Keys", "expect_strategy", "load_config", "make_config", "resolve", "showing_keys"]

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
    return resolve(Path(path), overrides)


def resolve(
    config: Config | str | os.PathLike[str] | None,
    overrides: Mapping[str, object],
    below: Mapping[str, object] | None = None,
) -> Config:
    """Make one checked Config of the arguments of a function of the Python API.

    Args:
        config: a Config, or the path of a YAML file.
        overrides: keys that win over it.
        below: keys for which both win.

    Raises:
        UsageError: if the result is not valid.

    """
    values: Mapping[str, object] = {}
    where: dict[str, str] = {}
    if isinstance(config, Config):
        values = config.values()
    elif config is not None:
        values, where = read_mapping(Path(config))
    lines = {key: line for key, line in where.items() if key not in overrides}
    return make_config({**(below or {}), **values, **overrides}, lines)


def expect_strategy(config: Config, strategies: Sequence[str] = ("dp",)) -> Config:
    """Return a config whose strategy is one of these.

    Raises:
        UsageError: if it is another.

    """
    if config.strategy not in strategies:
        raise UsageError(
            f"the strategy {config.strategy} is not supported here",
            key="strategy",
            hint="leave {strategy=} out",
        )
    return config
