"""Checks across several config keys."""

import difflib
from collections.abc import Iterator

from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import KEYS, Config
from dpdemo.config.ranks import OF_DDP_ALONE, ranks_per_node, rows_per_rank, world_size
from dpdemo.config.targets import FORMS, is_target
from dpdemo.errors import UsageError
from dpdemo.wording import show

Problem = tuple[str, str, str]
"""The key that does not fit, what was expected and what was got, and the next step."""


def check_together(config: Config) -> None:
    """Check that the keys fit each other.

    Raises:
        UsageError: naming the key that does not fit.

    """
    for key, message, hint in _problems(config):
        raise UsageError(f"expected {message}", key=key, hint=hint)


def _problems(config: Config) -> Iterator[Problem]:
    """Yield what does not fit; each check relies on those before it."""
    if config.gpus == ():
        yield "gpus", "at least one GPU, got an empty list", "leave `{gpus=}` out to run on the CPU"
    if config.trace_sample is not None and config.trace_sample >= config.data_size:
        samples = f"one of the {config.data_size} samples, 0 to {config.data_size - 1}"
        yield "trace_sample", f"{samples}, got {config.trace_sample}", "samples are counted from 0"
    yield from _of_model(config)
    yield from _of_dp(config) if config.strategy == "dp" else _of_ddp(config)


def _of_model(config: Config) -> Iterator[Problem]:
    if not config.is_builtin and not is_target(config.model):
        near = difflib.get_close_matches(config.model.lower(), MODELS, n=1)
        example = "for a model of your own write its file: `model.py:Net`; for one of a library "
        yield (
            "model",
            f"one of {', '.join(MODELS)}, or {FORMS}, got {show(config.model)}",
            f"did you mean `{near[0]}`?" if near else f"{example}`torchvision:resnet50`",
        )


def _of_dp(config: Config) -> Iterator[Problem]:
    for key in OF_DDP_ALONE:
        value = getattr(config, key)
        if value != KEYS[key].default:
            yield key, f"`{key}` only with the strategy ddp, got {show(value)}", "add {strategy=ddp}"
    if config.drop_last and config.batch_size > config.data_size:
        sizes = f"data_size {config.data_size} < batch_size {config.batch_size} with drop_last"
        yield _no_batch(f"at least one full batch, got {sizes}, which leaves none")
    if isinstance(config.gpus, int) and (config.output_device or 0) >= config.gpus:
        yield (
            "output_device",
            f"one of the {config.gpus} GPUs, 0 to {config.gpus - 1}, got {config.output_device}",
            "to gather on a GPU that gets no chunk, list the others, such as `{gpus=[0, 1]}`",
        )


def _no_batch(message: str) -> Problem:
    return "drop_last", message, "leave {drop_last=} out, or choose a smaller {batch_size=}"


def _of_ddp(config: Config) -> Iterator[Problem]:
    if config.output_device is not None:
        yield (
            "output_device",
            f"no output device under ddp, got {config.output_device}",
            "DDP gathers nothing: each rank keeps its own outputs. Leave {output_device=} out",
        )
    if isinstance(config.gpus, tuple) and len(set(config.gpus)) < len(config.gpus):
        gpus = f"a different GPU for each rank under ddp, got {list(config.gpus)}"
        yield "gpus", gpus, "name each GPU once"
    ranks = ranks_per_node(config)
    if config.processes is not None and ranks is not None and ranks != config.processes:
        yield (
            "processes",
            f"as many processes as GPUs, got {config.processes} and {ranks}",
            "leave {processes=} out: each GPU has a rank; or leave {gpus=} out to run on the CPU",
        )
    num_ranks = world_size(config)
    if num_ranks is not None:
        yield from _of_batch(config, num_ranks)


def _of_batch(config: Config, num_ranks: int) -> Iterator[Problem]:
    from dpdemo.arithmetic.sampler import samples_per_rank

    if config.batch_size_is == "global" and config.batch_size % num_ranks:
        below = config.batch_size // num_ranks * num_ranks
        sizes = " or ".join(str(size) for size in (below, below + num_ranks) if size)
        yield (
            "batch_size",
            f"a global batch_size that the {num_ranks} ranks divide, got {config.batch_size}",
            f"choose {sizes}, or give each rank its own: {{batch_size_is=per-rank}}",
        )
    each = rows_per_rank(config, num_ranks)
    samples = samples_per_rank(config.data_size, num_ranks, sampler_drop_last=config.sampler_drop_last)
    if samples == 0:
        sizes = f"data_size {config.data_size} for {num_ranks} ranks with sampler_drop_last"
        yield (
            "sampler_drop_last",
            f"at least one sample per rank, got {sizes}, which leaves none",
            "leave {sampler_drop_last=} out to repeat samples, or choose fewer ranks",
        )
    if config.drop_last and samples < each:
        sizes = f"{samples} samples per rank < {each} per batch with drop_last"
        yield _no_batch(f"at least one full batch per rank, got {sizes}, which leaves none")
