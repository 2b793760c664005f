"""The draws of each rank by the rule of a library: `dpdemo simulate --strategy ddp --loader NAME`."""

from dpdemo.arithmetic.draws import RULES
from dpdemo.config.fields import Config
from dpdemo.config.ranks import rows_per_rank, world_size
from dpdemo.errors import UsageError
from dpdemo.results.draws import DrawsReport

_MOST_SAMPLES = 1_000_000


def predict_draws(config: Config, loader: str) -> DrawsReport:
    """Predict which rank draws which samples of an epoch in order.

    Raises:
        UsageError: for a loader without a rule here, more samples than can be listed, a shuffled epoch, or a
            batch size that the library refuses.

    """
    if loader not in RULES:
        raise UsageError(f"expected one of {', '.join(RULES)}, got `{loader}`", key="loader")
    if config.strategy != "ddp":
        raise UsageError("expected ranks, got DataParallel", key="loader", hint="add {strategy=ddp}")
    if config.shuffle:
        raise UsageError("expected an epoch in order, got one that is shuffled", key="loader")
    if config.data_size > _MOST_SAMPLES:
        most = f"expected at most {_MOST_SAMPLES:,} samples, each of which is listed"
        raise UsageError(f"{most}, got {config.data_size:,}", key="data_size")
    number = world_size(config)
    if number is None:
        raise UsageError("expected a count such as 4, got `all`", key="gpus")
    rows = rows_per_rank(config, number)
    chosen = RULES[loader]
    try:
        ranks = chosen.find(config.data_size, number, rows, config.drop_last)
    except ValueError as error:
        raise UsageError(f"{error}, by the rule of {loader}", key="loader") from None
    drawn = tuple(tuple(map(tuple, batches)) for batches in ranks)
    return DrawsReport(loader, chosen.source, config.data_size, rows, drawn)
