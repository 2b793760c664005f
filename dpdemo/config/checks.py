"""What no key of a config can be checked for alone: keys that must fit each other."""

import difflib

from dpdemo.arithmetic.sampler import samples_per_rank
from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import Config
from dpdemo.config.ranks import OF_DDP_ALONE, ranks_per_node, rows_per_rank, world_size
from dpdemo.config.targets import FORMS, is_target
from dpdemo.config.unequal import check_weights
from dpdemo.config.weights import is_weighted
from dpdemo.errors import UsageError
from dpdemo.wording import Where, at, show_set


def check_together(config: Config, where: Where) -> None:
    """Check that the keys fit each other."""
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
    _check_strategy(config, where)
    check_weights(config, where)
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
    if not config.is_builtin and not is_target(config.model):
        raise _unknown_model(config.model, where)
    # A model of the user's own gets rows of input_size features
    num_dims = MODELS[config.model].num_dims if config.is_builtin else 2
    if config.dim >= num_dims:
        raise UsageError(
            f"expected a dimension from 0 to {num_dims - 1} for this model, got {config.dim} - "
            f"{at('dim', where)}",
            hint="the batch stands in dimension 0 unless the model says otherwise: leave `dim` out",
        )


_HOW_TO_NAME_A_MODEL = (
    "for a model of your own write its file: `model.py:Net`; for one of a library `torchvision:resnet50`"
)


def _unknown_model(name: str, where: Where) -> UsageError:
    near = difflib.get_close_matches(name.lower(), MODELS, n=1)
    hint = f"did you mean `{near[0]}`?" if near else _HOW_TO_NAME_A_MODEL
    return UsageError(
        f"expected one of {', '.join(MODELS)}, or {FORMS}, got {show_set(name, 'model', where)} "
        f"- {at('model', where)}",
        hint=hint,
    )


def _check_strategy(config: Config, where: Where) -> None:
    """Check the keys that mean something to one strategy only, and that something can be run."""
    if config.strategy == "dp":
        _check_not_ddp(config, where)
        return
    if config.output_device is not None:
        raise UsageError(
            f"expected no output device under ddp, got {config.output_device} - {at('output_device', where)}",
            hint="DDP gathers nothing: each rank keeps its own outputs. Leave output_device out",
        )
    _check_ranks(config, where)
    num_ranks = world_size(config)
    if num_ranks is not None and not is_weighted(config):
        _check_batch(config, num_ranks, where)


def _check_not_ddp(config: Config, where: Where) -> None:
    for key in OF_DDP_ALONE:
        default = type(config).model_fields[key].default
        if getattr(config, key) != default:
            raise UsageError(
                f"expected `{key}` only with the strategy ddp, got {getattr(config, key)} with dp - "
                f"{at(key, where)}",
                hint="add --strategy ddp (in a file, `strategy: ddp`)",
            )


def _check_ranks(config: Config, where: Where) -> None:
    if isinstance(config.gpus, tuple) and len(set(config.gpus)) < len(config.gpus):
        raise UsageError(
            f"expected a GPU of its own for each rank under ddp, got {list(config.gpus)} - "
            f"{at('gpus', where)}",
            hint="name each GPU once",
        )
    ranks = ranks_per_node(config)
    if config.processes is not None and ranks is not None and ranks != config.processes:
        raise UsageError(
            f"expected as many processes as GPUs, got {config.processes} and {ranks} - "
            f"{at('processes', where)}",
            hint="leave `processes` out: each of `gpus` has a rank; or leave `gpus` out to run on the CPU",
        )


def _check_batch(config: Config, num_ranks: int, where: Where) -> None:
    if config.batch_size_is == "global" and config.batch_size % num_ranks:
        below = config.batch_size // num_ranks * num_ranks
        sizes = " or ".join(str(size) for size in (below, below + num_ranks) if size)
        raise UsageError(
            f"expected a global batch_size that the {num_ranks} ranks divide, got {config.batch_size} - "
            f"{at('batch_size', where)}",
            hint=f"choose {sizes}, or give each rank its own: --set batch_size_is=per-rank",
        )
    each = rows_per_rank(config, num_ranks)
    samples = samples_per_rank(config.data_size, num_ranks, sampler_drop_last=config.sampler_drop_last)
    if samples == 0:
        raise UsageError(
            f"expected at least one sample per rank, got data_size {config.data_size} for {num_ranks} ranks "
            f"with sampler_drop_last, which leaves none - {at('sampler_drop_last', where)}",
            hint="leave sampler_drop_last out to repeat samples, or choose fewer ranks",
        )
    if config.drop_last and samples < each:
        raise UsageError(
            f"expected at least one full batch per rank, got {samples} samples per rank < "
            f"{each} per batch with drop_last, which leaves none - {at('drop_last', where)}",
            hint="leave drop_last out, or choose a smaller batch_size",
        )
