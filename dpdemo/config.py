"""The config: what to run, checked. Read from YAML, from keyword arguments, or from both.

Nothing here needs torch. The YAML reader itself is imported only when there is a file to read.
"""

import difflib
import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from dpdemo.catalogue import MODELS
from dpdemo.errors import UsageError
from dpdemo.gpus import MAX_ORDINAL

INT64_MAX = 2**63 - 1

PositiveInt = Annotated[int, Field(ge=1, le=INT64_MAX)]
Ordinal = Annotated[int, Field(ge=0, le=MAX_ORDINAL)]
DType = Literal["float32", "float64", "bfloat16", "float16"]


class Config(pydantic.BaseModel):
    """What is split and over what; the defaults are those of PyTorch's DataParallel tutorial.

    Raises:
        UsageError: from `make_config` and `load_config`, for any value that cannot be.

    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True, extra="forbid")

    input_size: PositiveInt = Field(default=5, description="Features of one sample.")
    output_size: PositiveInt = Field(default=2, description="Features of one output.")
    batch_size: PositiveInt = Field(default=30, description="Samples in one batch, over all GPUs together.")
    data_size: PositiveInt = Field(default=100, description="Samples in one epoch.")
    gpus: Annotated[int, Field(ge=1, le=MAX_ORDINAL)] | tuple[Ordinal, ...] | Literal["all"] | None = Field(
        default=None,
        description="DataParallel's device_ids: a list of ordinals in replica order, a count, or `all`.",
    )
    model: str = Field(
        default="linear", description=f"One of {', '.join(MODELS)}, or `pkg.mod:factory` for your own."
    )
    output_device: Ordinal | None = Field(
        default=None,
        description="Ordinal of the GPU that gathers the outputs; the first of `gpus` if left out.",
    )
    dim: Annotated[int, Field(ge=0, le=63)] = Field(default=0, description="Dimension that holds the batch.")
    shuffle: bool = Field(default=False, description="Visit the samples in a random order.")
    drop_last: bool = Field(default=False, description="Leave out a last batch that is not full.")
    seed: Annotated[int, Field(ge=0, le=INT64_MAX)] = Field(
        default=0, description="Seed of data and weights."
    )
    dtype: DType = Field(default="float32", description="Type of the model's numbers.")

    @pydantic.field_validator("gpus", mode="before")
    @classmethod
    def _freeze_list(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @property
    def is_builtin(self) -> bool:
        """Whether the model is one of dpdemo's own."""
        return self.model in MODELS


Where = Mapping[str, str]
"""Where each key was set, for messages: `configs/x.yaml:3` or ``option `--batch-size` ``."""


def make_config(values: Mapping[str, Any], where: Where | None = None) -> Config:
    """Check values and freeze them.

    Raises:
        UsageError: naming the first bad key, where it was set, what was expected and what was got.

    """
    where = where or {}
    try:
        config = Config.model_validate(dict(values))
    except pydantic.ValidationError as error:
        raise _explain(error, where) from None
    _check_together(config, where)
    return config


def load_config(path: str | os.PathLike[str], **overrides: Any) -> Config:
    """Read a YAML config; keyword arguments win over the file.

    Raises:
        UsageError: if the file cannot be read, is not YAML, or holds anything but a valid config.

    """
    values, where = read_values(path)
    return make_config({**values, **overrides}, {**where, **dict.fromkeys(overrides, "argument")})


def read_values(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the keys of a config file, unchecked, and where each stands.

    Raises:
        UsageError: if the file cannot be read or is not a YAML mapping with text keys.

    """
    from dpdemo.yamlfile import read_mapping

    return read_mapping(Path(path))


def _check_together(config: Config, where: Where) -> None:
    if config.gpus == ():
        raise UsageError(
            f"expected at least one GPU, got an empty list - {_at('gpus', where)}",
            hint="leave `gpus` out to run on the CPU",
        )
    if config.drop_last and config.batch_size > config.data_size:
        raise UsageError(
            f"expected at least one full batch, got data_size {config.data_size} < batch_size "
            f"{config.batch_size} with drop_last, which leaves none - {_at('drop_last', where)}",
            hint="leave drop_last out, or choose a smaller batch_size",
        )
    if isinstance(config.gpus, int) and (config.output_device or 0) >= config.gpus:
        raise UsageError(
            f"expected one of the {config.gpus} GPUs (0 to {config.gpus - 1}), got {config.output_device} - "
            f"{_at('output_device', where)}"
        )
    if config.is_builtin:
        _check_builtin(config, where)
    elif ":" not in config.model:
        raise _unknown_model(config.model, where)


def _check_builtin(config: Config, where: Where) -> None:
    dims = MODELS[config.model].num_dims
    if config.dim >= dims:
        raise UsageError(
            f"expected a dimension from 0 to {dims - 1} for the model `{config.model}`, got {config.dim} - "
            f"{_at('dim', where)}"
        )


def _unknown_model(name: str, where: Where) -> UsageError:
    near = difflib.get_close_matches(name, MODELS, n=1)
    hint = f"did you mean `{near[0]}`?" if near else "write `package.module:factory` for a model of your own"
    return UsageError(
        f"expected a model out of {', '.join(MODELS)}, or `pkg.mod:factory`, got {_show(name)} - "
        f"{_at('model', where)}",
        hint=hint,
    )


def _explain(error: pydantic.ValidationError, where: Where) -> UsageError:
    """Turn pydantic's first finding into expected, got, where, next step."""
    found = error.errors(include_url=False, include_context=True)[0]
    key = str(found["loc"][0]) if found["loc"] else ""
    if found["type"] == "extra_forbidden":
        return unknown_key(key, _at(key, where))
    expected = _EXPECTED[key]
    return UsageError(
        f"expected {expected}, got {_show(found['input'])} - {_at(key, where)}",
        hint=_next_step(key, found["input"]),
    )


def unknown_key(key: str, at: str) -> UsageError:
    """Make the error for a key that is not in the config, naming the nearest one that is."""
    known = list(Config.model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(known)}"
    return UsageError(f"expected a known key, got {_show(key)} - {at}", hint=hint)


_WHOLE = f"a whole number from 1 to {INT64_MAX}"
_EXPECTED = {
    "input_size": _WHOLE,
    "output_size": _WHOLE,
    "batch_size": _WHOLE,
    "data_size": _WHOLE,
    "gpus": "a list of ordinals such as [0, 1, 2], a count such as 3, or `all`",
    "model": "the name of a model",
    "output_device": f"the ordinal of a GPU, from 0 to {MAX_ORDINAL}",
    "dim": "a dimension from 0 to 63",
    "shuffle": "true or false",
    "drop_last": "true or false",
    "seed": f"a whole number from 0 to {INT64_MAX}",
    "dtype": "float32, float64, bfloat16 or float16",
}


def _next_step(key: str, got: object) -> str:
    if isinstance(got, str) and got.strip().isdecimal() and len(got) < 20:
        return f"remove the quotes: `{key}: {int(got)}`"
    if isinstance(got, float) and got.is_integer() and abs(got) < INT64_MAX:
        return f"write it without a point or an exponent: `{key}: {int(got)}`"
    if got is None:
        return f"leave `{key}` out to get the default, {Config.model_fields[key].default}"
    return ""


def _at(key: str, where: Where) -> str:
    place = where.get(key)
    return f"at {place}, key `{key}`" if place else f"at key `{key}`"


_KINDS = {
    str: "text", bool: "a boolean", int: "a whole number", float: "a number",
    dict: "a mapping", list: "a list", tuple: "a list",
}  # fmt: skip


def _show(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    kind = _KINDS.get(type(value), f"a {type(value).__name__}")
    if isinstance(value, tuple):
        value = list(value)  # a list in the file, frozen by the config
    return f"{_short.repr(value)} ({kind})"


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
