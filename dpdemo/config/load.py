"""Making a checked config: from YAML, from keyword arguments, or from both.

Nothing here needs torch. The YAML reader itself is imported only when there is a file to read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

import pydantic

from dpdemo.config.checks import check_together
from dpdemo.config.fields import Config
from dpdemo.config.keys import Keys, showing_keys
from dpdemo.config.messages import explain, unknown_key
from dpdemo.wording import Where, at, show_key


def make_config(values: Mapping[str, object], where: Where | None = None) -> Config:
    """Check values and freeze them.

    Raises:
        UsageError: naming the first bad key, where it was set, what was expected and what was got.

    """
    where = where or {}
    for key in values:
        if key not in Config.model_fields:
            place = where.get(key, "")
            raise unknown_key(key, f"at {place}" if place else at(key, where))
    try:
        config = Config.model_validate(dict(values))
    except pydantic.ValidationError as error:
        raise explain(error, where) from None
    check_together(config, where)
    return config


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
    return make_config({**values, **overrides}, {**where, **as_arguments(overrides)})


def as_arguments(values: Mapping[str, object]) -> Where:
    """Say of each value that it was a keyword argument."""
    return {key: f"argument {show_key(key)}" for key in values}


def read_values(path: str | os.PathLike[str]) -> tuple[dict[str, object], dict[str, str]]:
    """Read the keys of a config file, unchecked, and where each stands.

    Raises:
        UsageError: if the file cannot be read or is not a YAML mapping with text keys.

    """
    from dpdemo.config.yamlfile import read_mapping

    return read_mapping(Path(path))


def resolve(config: Config | str | os.PathLike[str] | None, overrides: Mapping[str, object]) -> Config:
    """Make one checked Config of what the Python API was given.

    Raises:
        UsageError: if the result is not valid.

    """
    if config is None:
        return make_config(overrides, as_arguments(overrides))
    if isinstance(config, Config):
        return make_config({**config.model_dump(exclude_unset=True), **overrides}, as_arguments(overrides))
    return _loaded(config, overrides)
