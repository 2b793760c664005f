"""`compare_strategies`: the same model and batch under several strategies, a report for each."""

import os
from collections.abc import Sequence
from typing import Any, Unpack

from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, make_config, resolve, showing_keys
from dpdemo.config.ranks import OF_DDP_ALONE, num_gpus
from dpdemo.errors import UsageError
from dpdemo.memory.case import STRATEGIES, Case, Progress
from dpdemo.memory.hardware import Hardware, Sizes
from dpdemo.memory.inputs import Given
from dpdemo.memory.largest import expect_capacity, search_largest
from dpdemo.memory.predict import predict
from dpdemo.models.libraries import InputSizes
from dpdemo.results.memorydata import Training
from dpdemo.results.strategies import StrategiesReport
from dpdemo.results.wrapping import SHORT, Wrapping
from dpdemo.wording import show


@showing_keys
def compare_strategies(  # noqa: PLR0913 - all that a step depends on
    strategies: Sequence[str],
    config: Config | str | os.PathLike[str] | None = None,
    *,
    fit: bool = False,
    training: Training | None = None,
    gpu_memory: Sizes = None,
    gpu: str | None = None,
    reserve: str | int | None = None,
    inputs: Given | str = None,
    input_sizes: InputSizes | None = None,
    progress: Progress | None = None,
    numbers: bool = False,
    wrapping: Wrapping | None = None,
    **overrides: Unpack[Keys],
) -> StrategiesReport:
    """Predict the memory of a step under several strategies.

    With DataParallel among them the batch is that of all GPUs together, so that each GPU has the same rows
    under all; otherwise it is each rank's. `batch_size_is` says otherwise.

    Args:
        strategies: some of "dp", "ddp" and "fsdp2".
        config: as for `predict_memory`.
        fit: whether to search for the largest batch, too.
        training: the optimizer, the loss and other settings.
        gpu_memory: the capacity of each GPU; `fit` needs it, or the card.
        gpu: the card.
        reserve: memory kept free on each GPU.
        inputs: the inputs of a batch size.
        input_sizes: how long texts and how large images are, for a model of a library.
        progress: called with a description of each piece of work.
        numbers: compute with real numbers.
        wrapping: settings of the strategies; each reads its own.
        overrides: config keys that win over `config`.

    Returns:
        A memory report for each strategy.

    Raises:
        UsageError: for an unknown strategy, or one that is named twice, and as `predict_memory` does.
        RunError: if the model fails.

    """
    _expect_known(strategies)
    settings = wrapping or Wrapping()
    settings.expect_effect(tuple(strategies))
    if fit:
        expect_capacity(gpu_memory, gpu)
    values = resolve(config, overrides).values()
    is_shared = len(strategies) > 1 and "dp" in strategies
    reports = []
    for strategy in strategies:
        case = Case(
            config=config_of(values, strategy),
            training=training or Training(),
            hardware=Hardware(gpu_memory, gpu, reserve),
            inputs=inputs,
            input_sizes=input_sizes,
            numbers=numbers,
            wrapping=settings.of(strategy),
            say=_naming(SHORT[strategy], progress),
            shares_batch=is_shared and values.get("batch_size_is") is None,
        )
        reports.append(search_largest(case) if fit else predict(case))
    return StrategiesReport(tuple(reports))


def _naming(strategy: str, progress: Progress | None) -> Progress:
    return lambda text: progress(f"{strategy}: {text}") if progress else None


def config_of(values: dict[str, Any], strategy: str) -> Config:
    """Return the config of one strategy; of DataParallel, whose batch is never each GPU's own."""
    values = {**values, "strategy": strategy}
    if strategy != "dp":
        return make_config(values)
    found = make_config({key: value for key, value in values.items() if key not in OF_DDP_ALONE})
    if values.get("batch_size_is") != "per-rank":
        return found
    return make_config({**found.values(), "batch_size": found.batch_size * num_gpus(found)})


def _expect_known(strategies: Sequence[str]) -> None:
    for strategy in strategies:
        if strategy not in STRATEGIES:
            message = f"expected some of {', '.join(STRATEGIES)}, got {show(strategy)}"
            raise UsageError(message, key="strategy")
    if not strategies or len(set(strategies)) < len(strategies):
        raise UsageError(
            f"expected each strategy once, got {', '.join(strategies) or 'none'}", key="strategy"
        )
