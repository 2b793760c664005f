"""Checks across several config keys."""

import difflib
from typing import NoReturn

from dpdemo.arithmetic.weights import short_list
from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import KEYS, Config
from dpdemo.config.ranks import OF_DDP_ALONE, distribute_epoch, ranks_per_node, rows_per_rank, world_size
from dpdemo.config.targets import FORMS, is_target
from dpdemo.config.weights import expect_one_each, is_weighted, split_of, weights_key, weights_of
from dpdemo.errors import UsageError
from dpdemo.wording import show


def check_together(config: Config) -> None:
    """Check that the keys fit each other.

    Raises:
        UsageError: naming the key that does not fit.

    """
    if config.gpus == ():
        _refuse(
            "gpus",
            "expected at least one GPU, got an empty list",
            "leave `{gpus=}` out to run on the CPU",
        )
    if config.trace_sample is not None and config.trace_sample >= config.data_size:
        _refuse(
            "trace_sample",
            f"expected one of the {config.data_size} samples, 0 to {config.data_size - 1}, got "
            f"{config.trace_sample}",
            "samples are counted from 0",
        )
    _check_model(config)
    if config.strategy == "dp":
        _check_dp(config)
    else:
        _check_ddp(config)
    if is_weighted(config):
        _check_weights(config)


def _refuse(key: str, message: str, hint: str) -> NoReturn:
    raise UsageError(message, key=key, hint=hint)


def _check_model(config: Config) -> None:
    if not config.is_builtin and not is_target(config.model):
        near = difflib.get_close_matches(config.model.lower(), MODELS, n=1)
        example = "for a model of your own write its file: `model.py:Net`; for one of a library "
        _refuse(
            "model",
            f"expected one of {', '.join(MODELS)}, or {FORMS}, got {show(config.model)}",
            f"did you mean `{near[0]}`?" if near else f"{example}`torchvision:resnet50`",
        )
    # A model of the user's own gets rows of input_size features
    num_dims = MODELS[config.model].num_dims if config.is_builtin else 2
    if config.dim >= num_dims:
        _refuse(
            "dim",
            f"expected a dimension from 0 to {num_dims - 1} for this model, got {config.dim}",
            "the batch is in dimension 0 unless the model says otherwise: leave `{dim=}` out",
        )


def _check_dp(config: Config) -> None:
    for key in OF_DDP_ALONE:
        value = getattr(config, key)
        if value != KEYS[key].default:
            _refuse(
                key, f"expected `{key}` only with the strategy ddp, got {show(value)}", "add {strategy=ddp}"
            )
    if config.drop_last and config.batch_size > config.data_size:
        _refuse(
            "drop_last",
            f"expected at least one full batch, got data_size {config.data_size} < batch_size "
            f"{config.batch_size} with drop_last, which leaves none",
            "leave {drop_last=} out, or choose a smaller {batch_size=}",
        )
    if isinstance(config.gpus, int) and (config.output_device or 0) >= config.gpus:
        _refuse(
            "output_device",
            f"expected one of the {config.gpus} GPUs, 0 to {config.gpus - 1}, got {config.output_device}",
            "to gather on a GPU that gets no chunk, list the others, such as `{gpus=[0, 1]}`",
        )


def _check_ddp(config: Config) -> None:
    if config.output_device is not None:
        _refuse(
            "output_device",
            f"expected no output device under ddp, got {config.output_device}",
            "DDP gathers nothing: each rank keeps its own outputs. Leave {output_device=} out",
        )
    if isinstance(config.gpus, tuple) and len(set(config.gpus)) < len(config.gpus):
        _refuse(
            "gpus",
            f"expected a different GPU for each rank under ddp, got {list(config.gpus)}",
            "name each GPU once",
        )
    ranks = ranks_per_node(config)
    if config.processes is not None and ranks is not None and ranks != config.processes:
        _refuse(
            "processes",
            f"expected as many processes as GPUs, got {config.processes} and {ranks}",
            "leave {processes=} out: each GPU has a rank; or leave {gpus=} out to run on the CPU",
        )
    num_ranks = world_size(config)
    if num_ranks is not None and not is_weighted(config):
        _check_batch(config, num_ranks)


def _check_batch(config: Config, num_ranks: int) -> None:
    if config.batch_size_is == "global" and config.batch_size % num_ranks:
        below = config.batch_size // num_ranks * num_ranks
        sizes = " or ".join(str(size) for size in (below, below + num_ranks) if size)
        _refuse(
            "batch_size",
            f"expected a global batch_size that the {num_ranks} ranks divide, got {config.batch_size}",
            f"choose {sizes}, or give each rank its own: {{batch_size_is=per-rank}}",
        )
    from dpdemo.arithmetic.sampler import samples_per_rank

    each = rows_per_rank(config, num_ranks)
    samples = samples_per_rank(config.data_size, num_ranks, sampler_drop_last=config.sampler_drop_last)
    if samples == 0:
        _refuse(
            "sampler_drop_last",
            f"expected at least one sample per rank, got data_size {config.data_size} for {num_ranks} ranks "
            f"with sampler_drop_last, which leaves none",
            "leave {sampler_drop_last=} out to repeat samples, or choose fewer ranks",
        )
    if config.drop_last and samples < each:
        _refuse(
            "drop_last",
            f"expected at least one full batch per rank, got {samples} samples per rank < "
            f"{each} per batch with drop_last, which leaves none",
            "leave {drop_last=} out, or choose a smaller {batch_size=}",
        )


def _check_weights(config: Config) -> None:
    key, given = weights_key(config), weights_of(config) or ()
    if config.weights is not None and config.chunks is not None:
        _refuse(
            "chunks",
            "expected `weights` or `chunks`, got both",
            "weights are proportions for any batch, chunks the exact sizes of a full one",
        )
    if not any(given):
        _refuse(
            key,
            f"expected at least one of `{key}` above 0, got {short_list(given) or 'none'}",
            f"{{{key}=[1, 2, 2]}} gives the first GPU half of what each of the others gets",
        )
    if config.strategy == "dp" and config.gpus is None:
        ordinals = ", ".join(map(str, range(len(given))))
        _refuse(
            key,
            f"expected GPUs to share the batch, got none with {key} {show(given)}",
            f"name them: {{gpus={len(given) if len(given) > 16 else f'[{ordinals}]'}}}",
        )
    if config.chunks is not None and sum(config.chunks) != config.batch_size:
        _refuse(
            "chunks",
            f"expected chunks that add up to the batch size {config.batch_size}, got {sum(config.chunks)} "
            f"({short_list(config.chunks)})",
            f"{{batch_size={sum(config.chunks)}}}, or {{weights=}}, which are proportions for any batch",
        )
    if config.strategy == "ddp" and config.batch_size_is == "per-rank":
        _refuse(
            "batch_size_is",
            "expected the batch size of all ranks together, got that of each rank",
            "leave {batch_size_is=} out: with weights the batch size is global",
        )
    num_devices = world_size(config)
    if num_devices is not None and (config.gpus, config.processes) != (None, None):  # else torchrun knows
        expect_one_each(config, num_devices)
        if config.strategy == "ddp":
            _check_ranks(config, num_devices)


def _check_ranks(config: Config, num_ranks: int) -> None:
    """Check that each rank of DDP has a row: all of them take part in every all-reduce."""
    split = split_of(config, config.batch_size, num_ranks)
    if split.num_idle:
        _refuse(
            weights_key(config),
            f"expected at least a row for each rank in a batch of {config.batch_size}, got none for rank "
            f"{split.idle()[0]}",
            "every rank takes part in the all-reduce: leave its GPU out, or give it more",
        )
    if not distribute_epoch(config, num_ranks).drawn:
        key = "drop_last" if config.drop_last else "sampler_drop_last"
        _refuse(
            key,
            f"expected at least one batch, got data_size {config.data_size} with `{key}`, which leaves none "
            f"of {config.batch_size}",
            f"leave {{{key}=}} out, or choose a smaller {{batch_size=}}",
        )
