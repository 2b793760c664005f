"""Reading the options that commands share: the config, the memory of GPUs, the inputs of a model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from dpdemo.cli.edge import Edge
from dpdemo.cli.options import CONFIG_KEYS, is_typed
from dpdemo.config.fields import KEYS, Config
from dpdemo.config.gpus import parse_gpus
from dpdemo.config.kinds import unknown_key
from dpdemo.config.load import expect_strategy, make_config
from dpdemo.config.targets import is_target
from dpdemo.config.yamlfile import read_mapping
from dpdemo.errors import UsageError, about
from dpdemo.sizes import capacities
from dpdemo.wording import show

_KEYS_OF_ARGUMENTS = {"gpus_argument": "gpus", "target": "model"}
"""The keys that may be typed as arguments."""


def exclusive(ctx: typer.Context, first: str, *others: str) -> None:
    """Refuse parameters that were typed beside one that excludes them.

    Raises:
        UsageError: naming the first of both.

    """
    beside = [name for name in others if is_typed(ctx, name)]
    if is_typed(ctx, first) and beside:
        hint = "leave one of them out"
        raise UsageError("expected one of them, got both", key=f"{first} {beside[0]}", hint=hint)


def alone(ctx: typer.Context, first: str, *allowed: str) -> None:
    """Refuse all that was typed beside a parameter but a few others: it would have no effect.

    Raises:
        UsageError: as `exclusive` does.

    """
    exclusive(ctx, first, *(name for name in ctx.params if name not in {first, *allowed}))


def without_effect(ctx: typer.Context, names: Sequence[str], expected: str, got: str, hint: str) -> None:
    """Refuse parameters that were typed where they have no effect.

    Raises:
        UsageError: for the first of them, with what it needs and what is there instead.

    """
    ctx.obj.parameters = ctx.params
    for name in names:
        if is_typed(ctx, name):
            raise UsageError(f"expected {expected}, got {got}", key=name, hint=hint)


def read_settings(
    ctx: typer.Context,
    *,
    strategies: Sequence[str] = ("dp",),
    below: Mapping[str, object] | None = None,
    above: Mapping[str, object] | None = None,
) -> Config:
    """Read the config of a command from its options, by the names of its parameters.

    Args:
        ctx: the command's parameters.
        strategies: those that it knows.
        below: config keys that the command chooses, unless a file or an option does.
        above: config keys that the command chooses, whatever a file or an option says.

    Raises:
        UsageError: for anything that is not valid.

    """
    given, edge = ctx.params, ctx.obj
    edge.parameters = given
    named = {key: name for name, key in _KEYS_OF_ARGUMENTS.items() if given.get(name)}
    if "gpus" in named:  # before what it excludes: a config or a model may have been meant
        try:
            parse_gpus(given["gpus_argument"])
        except UsageError:
            edge.names |= named
            raise
    for first, other in (*_KEYS_OF_ARGUMENTS.items(), ("quiet", "verbose")):
        exclusive(ctx, first, other)
    edge.names |= named
    file = given.get("config")
    values, where = read_mapping(Path(file)) if file is not None else ({}, {})
    typed = {**_typed_keys(given, edge), **(above or {})}
    edge.where = {key: line for key, line in where.items() if key not in typed}
    config = make_config({**(below or {}), **values, **typed}, edge.where)
    expect_strategy(config, strategies)
    return config


def _typed_keys(given: Mapping[str, Any], edge: Edge) -> dict[str, object]:
    """Read config keys from their options, from arguments, and from `--set`."""
    typed = {name: given[name] for name in CONFIG_KEYS if given.get(name) is not None}
    typed |= {key: given[name] for name, key in _KEYS_OF_ARGUMENTS.items() if given.get(name)}
    for text in given.get("set_keys") or ():
        name, sign, value = text.partition("=")
        key = name.strip().replace("-", "_")
        if not sign or key in typed:
            expected, got = (f"`{key}` once", "it twice") if sign else ("KEY=VALUE", show(text))
            raise UsageError(f"expected {expected}, got {got}", key="set", hint="write --set seed=1")
        if key not in KEYS:
            with about("set"):
                raise unknown_key(key, KEYS)
        typed[key] = value.strip()
        edge.typed_in_set.add(key)
    return {key: read_key(key, value) if isinstance(value, str) else value for key, value in typed.items()}


def read_key(key: str, text: str) -> Any:
    """Read the value of a config key as its option writes it.

    Raises:
        UsageError: for a text that cannot be read.

    """
    with about(key):
        return KEYS[key].kind.read(text)


def read_gpu_memory(text: str | None, num_gpus: int) -> list[int] | None:
    """Read the capacity of each GPU in bytes; None without `--gpu-memory`.

    Raises:
        UsageError: a size cannot be read, or there are several, but not one for each GPU.

    """
    if text is None:
        return None
    sizes = [part.strip() for part in text.split(",")]
    with about("gpu_memory"):
        found = capacities(sizes[0] if len(sizes) == 1 else sizes, num_gpus)
    return [each for each in found if each is not None]


def inputs_of(ctx: typer.Context) -> list[str] | str | None:
    """Return the shapes of `--input` or the function of `--inputs`; None if there are neither.

    Raises:
        UsageError: for both, or a function that has not the form of one.

    """
    exclusive(ctx, "input", "inputs")
    shapes, function = ctx.params["input"], ctx.params["inputs"]
    if function and not is_target(function):
        raise UsageError(f"expected `pkg.mod:function`, got {show(function)}", key="inputs")
    return shapes or function or None


def batch_of_inputs(config: Config, shapes: list[str] | None) -> Config:
    """Take the batch size from the first shape, unless the user set it."""
    from dpdemo.models.inputspec import read_input

    written = [read_input(text) for text in shapes or ()]
    if not written or "batch_size" in config.given or len(written[0].shape) <= config.dim:
        return config
    rows = written[0].shape[config.dim]
    if not rows:
        raise UsageError(
            f"expected a batch of 1 or more, got {(shapes or [])[0]!r}",
            key="input",
            hint=f"number {config.dim + 1} of the first shape is the batch size",
        )
    return make_config({**config.values(), "batch_size": rows})


def codes_of(text: str) -> tuple[str, ...]:
    """Read `DP2,DP305`."""
    return tuple(code.strip() for code in text.split(",") if code.strip())
