"""The config's keys as keyword arguments: for type checkers, editors and whatever reads signatures."""

import inspect
from collections.abc import Callable, Sequence
from typing import Literal, TypedDict, TypeVar

from dpdemo.config.fields import Config, DType

Function = TypeVar("Function", bound=Callable[..., object])


class Keys(TypedDict, total=False):
    """What a function takes as `**overrides`: any keys of a `Config`, which says what each means."""

    input_size: int
    output_size: int
    batch_size: int
    data_size: int
    gpus: int | Sequence[int] | Literal["all"] | None
    model: str
    output_device: int | None
    dim: int
    shuffle: bool
    drop_last: bool
    seed: int
    dtype: DType
    strategy: Literal["dp", "ddp"]
    nodes: int
    processes: int | None
    batch_size_is: Literal["per-rank", "global"] | None
    sampler_drop_last: bool
    weights: Sequence[float] | None
    chunks: Sequence[int] | None
    trace_sample: int | None


def showing_keys(function: Function) -> Function:
    """Let the signature of a function with `**overrides` list every key with its default.

    `help(dpdemo.simulate)` and the Tab key of a notebook then show `gpus` and `batch_size`.
    """
    signature = inspect.signature(function)
    *own, overrides = signature.parameters.values()
    assert overrides.kind is inspect.Parameter.VAR_KEYWORD  # noqa: S101 - our own functions
    keys = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=Config.model_fields[name].default, annotation=kind
        )
        for name, kind in Keys.__annotations__.items()
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *keys])
    return function
