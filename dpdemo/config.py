"""The config: what to run, checked. Read from YAML, from keyword arguments, or from both.

Nothing here needs torch. The YAML reader itself is imported only when there is a file to read.
"""

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field

from dpdemo.catalogue import MODELS
from dpdemo.errors import UsageError
from dpdemo.gpus import MAX_ORDINAL
from dpdemo.strategy import check_strategy
from dpdemo.wording import as_set_there, at, show, show_key

INT64_MAX = 2**63 - 1

PositiveInt = Annotated[int, Field(ge=1, le=INT64_MAX)]
Ordinal = Annotated[int, Field(ge=0, le=MAX_ORDINAL)]
Count = Annotated[int, Field(ge=1, le=MAX_ORDINAL)]
DType = Literal["float32", "float64", "bfloat16", "float16"]


class Config(pydantic.BaseModel):
    """What is split and over what; the defaults are those of PyTorch's DataParallel tutorial.

    Raises:
        UsageError: from `make_config` and `load_config`, for any value that cannot be.

    """

    model_config = pydantic.ConfigDict(frozen=True, strict=True, extra="forbid")

    input_size: PositiveInt = Field(default=5, description="Features of one sample.")
    output_size: PositiveInt = Field(default=2, description="Features of one output.")
    batch_size: PositiveInt = Field(
        default=30, description="Samples in one batch: over all GPUs together, but of each rank under `ddp`."
    )
    data_size: PositiveInt = Field(default=100, description="Samples in one epoch.")
    gpus: Count | tuple[Ordinal, ...] | Literal["all"] | None = Field(
        default=None,
        description="DataParallel's device_ids: a list of ordinals in replica order, a count, or `all`; "
        "under `ddp` those of each node, a rank for each.",
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
    strategy: Literal["dp", "ddp"] = Field(
        default="dp", description="DataParallel, or DistributedDataParallel with a process for each rank."
    )
    nodes: Count = Field(default=1, description="Machines that the ranks of `ddp` run on.")
    processes: Count | None = Field(
        default=None,
        description="Ranks of `ddp` on each node, on the CPU; with `gpus` there is one for each GPU.",
    )
    batch_size_is: Literal["per-rank", "global"] | None = Field(
        default=None,
        description="Whether the batch_size of `ddp` is each rank's, as a DataLoader's is, or all ranks'.",
    )
    sampler_drop_last: bool = Field(
        default=False,
        description="DistributedSampler's drop_last: leave out the samples that the ranks do not divide, "
        "instead of repeating some.",
    )
    trace_sample: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = Field(
        default=None, description="Number of a sample whose way is shown: batch, device, row, output row."
    )

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
    for key in values:
        if key not in Config.model_fields:
            place = where.get(key, "")
            raise unknown_key(key, f"at {place}" if place else at(key, where))
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
    return make_config({**values, **overrides}, {**where, **as_arguments(overrides)})


def as_arguments(values: Mapping[str, Any]) -> Where:
    """Say of each value that it was a keyword argument."""
    return {key: f"argument {show_key(key)}" for key in values}


def read_values(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the keys of a config file, unchecked, and where each stands.

    Raises:
        UsageError: if the file cannot be read or is not a YAML mapping with text keys.

    """
    from dpdemo.yamlfile import read_mapping

    return read_mapping(Path(path))


def unknown_key(key: str, place: str) -> UsageError:
    """Make the error for a key that is not in the config, naming the nearest one that is."""
    known = list(Config.model_fields)
    alike = key.lower().replace("-", "_")
    near = ["gpus"] if alike == "device_ids" else difflib.get_close_matches(alike, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(known)}"
    return UsageError(f"expected a known key, got {show_key(key)} - {place}", hint=hint)


def _check_together(config: Config, where: Where) -> None:
    """Check what no key can tell alone."""
    if config.gpus == ():
        raise UsageError(
            f"expected at least one GPU, got an empty list - {at('gpus', where)}",
            hint="leave `gpus` out to run on the CPU",
        )
    if config.trace_sample is not None and config.trace_sample >= config.data_size:
        raise UsageError(
            f"expected one of the {config.data_size} samples, 0 to {config.data_size - 1}, got "
            f"{config.trace_sample} - {at('trace_sample', where)}",
            hint="samples are counted from 0",
        )
    check_strategy(config, where)
    if config.strategy == "dp" and config.drop_last and config.batch_size > config.data_size:
        raise UsageError(
            f"expected at least one full batch, got data_size {config.data_size} < batch_size "
            f"{config.batch_size} with drop_last, which leaves none - {at('drop_last', where)}",
            hint="leave drop_last out, or choose a smaller batch_size",
        )
    if isinstance(config.gpus, int) and (config.output_device or 0) >= config.gpus:
        raise UsageError(
            f"expected one of the {config.gpus} GPUs, 0 to {config.gpus - 1}, got {config.output_device} - "
            f"{at('output_device', where)}",
            hint="to gather on a GPU that gets no chunk, list the others, such as `gpus: [0, 1]`",
        )
    if not config.is_builtin and not _is_factory(config.model):
        raise _unknown_model(config.model, where)
    # A model of the user's own gets rows of input_size features
    num_dims = MODELS[config.model].num_dims if config.is_builtin else 2
    if config.dim >= num_dims:
        raise UsageError(
            f"expected a dimension from 0 to {num_dims - 1} for this model, got {config.dim} - "
            f"{at('dim', where)}",
            hint="the batch stands in dimension 0 unless the model says otherwise: leave `dim` out",
        )


def _is_factory(name: str) -> bool:
    module, colon, factory = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *factory.split(".")))


def _unknown_model(name: str, where: Where) -> UsageError:
    near = difflib.get_close_matches(name.lower(), MODELS, n=1)
    module, _, factory = name.rpartition(".")
    if near:
        hint = f"did you mean `{near[0]}`?"
    elif _is_factory(f"{module}:{factory}"):
        hint = f"did you mean {show_key(f'{module}:{factory}')}?"
    else:
        hint = "for a model of your own write its module as in an import: `package.module:factory`"
    return UsageError(
        f"expected one of {', '.join(MODELS)}, or `pkg.mod:factory`, got {show(name)} - {at('model', where)}",
        hint=hint,
    )


def _explain(error: pydantic.ValidationError, where: Where) -> UsageError:
    """Turn pydantic's first finding into expected, got, where, next step."""
    errors = error.errors(include_url=False, include_context=False)
    key = str(errors[0]["loc"][0])
    # A union reports each of its arms; the one that looked into the list knows the bad item
    for found in errors:
        if found["loc"][0] == key and isinstance(found["loc"][-1], int):
            return UsageError(
                f"expected an ordinal from 0 to {MAX_ORDINAL}, got {show(found['input'])} - "
                f"{at(key, where)}, item {found['loc'][-1] + 1}",
                hint=as_set_there(f"write for example `{key}: {_EXAMPLES[key]}`", key, where),
            )
    got = errors[0]["input"]
    return UsageError(
        f"expected {_expected(key, got)}, got {show(got)} - {at(key, where)}",
        hint=as_set_there(_next_step(key, got), key, where),
    )


_TOP = (
    dict.fromkeys(("seed", "trace_sample"), INT64_MAX)
    | dict.fromkeys(("output_device", "gpus", "nodes", "processes"), MAX_ORDINAL)
    | dict.fromkeys(("input_size", "output_size", "batch_size", "data_size"), INT64_MAX)
)
_EXPECTED = {
    "gpus": "a list of ordinals such as [0, 1, 2], a count such as 3, or `all`",
    "model": f"one of {', '.join(MODELS)}, or `pkg.mod:factory`",
    "output_device": "the ordinal of a GPU, 0 or more",
    "dim": "a dimension from 0 to 63",
    "shuffle": "true or false",
    "drop_last": "true or false",
    "seed": "a whole number of 0 or more",
    "trace_sample": "the number of a sample, 0 or more",
    "dtype": f"one of {', '.join(get_args(DType))}",
    "strategy": "dp or ddp",
    "batch_size_is": "per-rank or global",
    "sampler_drop_last": "true or false",
}
_EXAMPLES = {
    "gpus": "[0, 1, 2]", "output_device": "0", "shuffle": "true", "drop_last": "true", "strategy": "ddp",
    "nodes": "4", "processes": "3", "batch_size_is": "global", "sampler_drop_last": "true",
    "trace_sample": "17",
}  # fmt: skip


def _expected(key: str, got: object) -> str:
    if type(got) is int and key in _TOP and got > _TOP[key]:
        return f"a whole number of at most {_TOP[key]}"
    return _EXPECTED.get(key, "a whole number of 1 or more")


def _next_step(key: str, got: object) -> str:
    default = Config.model_fields[key].default
    example = _EXAMPLES.get(key, default)
    if got is None:
        return f"leave `{key}` out to get the default{'' if default is None else f', {example}'}"
    if key in _TOP or key == "dim":
        number = _as_number(got)
        if number is not None:
            slip = "the quotes" if isinstance(got, str) else "the point or exponent"
            return f"write it without {slip}: `{key}: {number}`"
    if key == "gpus":
        return _next_step_gpus(got)
    if key == "dtype" and isinstance(got, str):
        near = difflib.get_close_matches(got, get_args(DType), n=1)
        return f"did you mean `{near[0]}`?" if near else f"leave `{key}` out to get the default, {default}"
    return f"write for example `{key}: {example}`"


def _as_number(got: object) -> int | None:
    """Read what was meant as a whole number: text such as '30', or 1000.0 from 1e3."""
    if isinstance(got, str) and got.strip().isdecimal() and len(got) < 20:
        return int(got)
    if isinstance(got, float) and got.is_integer() and 0 < got < INT64_MAX:
        return int(got)
    return None


def _next_step_gpus(got: object) -> str:
    if type(got) is int and got == 0:
        return "for GPU 0 write `gpus: [0]`; for the CPU leave `gpus` out"
    if isinstance(got, str) and re.fullmatch(r"[0-9]{1,9}( *, *[0-9]{1,9}){1,15}", got):
        return f"write it as a list: `gpus: [{', '.join(re.findall('[0-9]+', got))}]`"
    return "write for example `gpus: [0, 1, 2]`"
