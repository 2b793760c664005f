"""Making the lesson of the offline page: where it starts, and what `simulate` says of some cases."""

import os
from collections.abc import Iterator
from itertools import groupby
from math import prod
from typing import Any

from dpdemo.arithmetic.weights import Weight
from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import Config
from dpdemo.config.load import resolve
from dpdemo.config.weights import weights_of
from dpdemo.errors import UsageError
from dpdemo.prediction.predict import predict
from dpdemo.prediction.shapes import predicted_devices
from dpdemo.reports.lesson import Answer, Given, Lesson, ModelBytes, PredictedMemory, Start
from dpdemo.reports.split import BatchGroup, ReplicaRun, Stop

MOST_GPUS = 128
MOST_BATCH = 100_000
MOST_DATA = 10**9
DEFAULT_GPUS = 3
"""Those of the tutorial, where a config names none."""
_NUMBER_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def make_lesson(
    config: Config | str | os.PathLike[str] | None = None,
    model: ModelBytes | None = None,
    memory: PredictedMemory | None = None,
    **overrides: object,
) -> Lesson:
    """Make the content of the page.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        model: the bytes of a model, as `dpdemo explain` saw them; those of the config's if left out.
        memory: what `dpdemo memory` predicted of it.
        overrides: config keys that win over `config`.

    Raises:
        UsageError: if the config is not valid, or larger than the page can draw.

    """
    chosen = resolve(config, overrides)
    num_gpus = DEFAULT_GPUS if chosen.gpus is None else len(predicted_devices(chosen))
    _check(chosen, num_gpus)
    weights = weights_of(chosen) or ()
    start = Start(
        chosen.batch_size, chosen.data_size, num_gpus, chosen.drop_last, ",".join(map(_written, weights))
    )
    cases = tuple((given, answer_of(given)) for given in golden_cases())
    return Lesson(start, model or _bytes_of(chosen), cases, memory)


def _check(config: Config, num_gpus: int) -> None:
    for key, value, most in (
        ("gpus", num_gpus, MOST_GPUS),
        ("batch_size", config.batch_size, MOST_BATCH),
        ("data_size", config.data_size, MOST_DATA),
    ):
        if value > most:
            raise UsageError(
                f"expected at most {most}, the most that the page draws, got {value} - at key `{key}`",
                hint="`dpdemo simulate` has no such limit",
            )


def _written(weight: Weight) -> str:
    """Write a weight as the page reads it: at most four digits, and three behind the point."""
    text = f"{weight:.3f}".rstrip("0").rstrip(".")
    if float(text) != weight or weight >= 10_000:
        raise UsageError(
            f"expected weights below 10000 with at most three digits behind the point, got {weight} - at "
            "key `weights`",
            hint="only proportions count: divide or multiply all of them",
        )
    return text


def _bytes_of(config: Config) -> ModelBytes:
    """Count what the shapes say about a built-in model; only for the linear one they say all."""
    if not config.is_builtin:
        return ModelBytes(config.model, None, None, None, f"see dpdemo explain --model {config.model}")
    shapes = MODELS[config.model]
    sizes = (config.input_size, config.output_size)
    into = prod((shapes.inner_input or shapes.input)(*sizes))
    out = prod((shapes.inner_output or shapes.output)(*sizes))
    number = _NUMBER_BYTES[config.dtype]
    module = (into + 1) * out * number if config.model == "linear" else None
    return ModelBytes(config.model, into * number, out * number, module, "counted from its shapes")


def golden_cases() -> Iterator[Given]:
    """Yield cases in which every branch of the rules is taken: short and idle, lone, dropped, weighted."""
    for batch, data in ((30, 100), (1, 1), (7, 20), (64, 1000), (65, 65), (10, 9), (5, 5000), (36, 36 * 4)):
        for gpus in (1, 2, 3, 4, 7, 8, 16):
            for drop_last in (False, True):
                if not (drop_last and batch > data):
                    yield batch, data, gpus, drop_last, None, data * 2 // 3
    yield MOST_BATCH, MOST_DATA, MOST_GPUS, False, None, MOST_DATA - 1
    yield MOST_BATCH - 1, MOST_DATA - 1, MOST_GPUS - 1, False, None, MOST_DATA // 3
    for weights in ((1, 2, 2), (1, 1, 1), (0, 1, 3), (3, 0, 1), (5, 7, 11, 13), (1, 0, 0, 0, 1), (1,) * 8):
        for batch, data in ((30, 100), (10, 31), (1, 3), (97, 1000)):
            yield batch, data, len(weights), False, weights, data // 2


def answer_of(given: Given) -> Answer:
    """Give what `simulate` says of a case."""
    batch, data, gpus, drop_last, weights, sample = given
    report = predict(
        Config(
            batch_size=batch,
            data_size=data,
            gpus=gpus,
            drop_last=drop_last,
            weights=weights,
            trace_sample=sample,
        )
    )
    totals, stops = report.totals, report.trace.stops if report.trace else ()
    sums = (totals.batches, totals.samples, totals.utilization, totals.sample_weight)
    return tuple(_group(group) for group in report.batches), sums, _gone(stops[0]) if stops else None


def _neighbours(replicas: ReplicaRun) -> Iterator[tuple[int, int, int]]:
    """Yield the GPUs that stand side by side: idle ones may lie between equal ones."""
    ordinals = replicas.devices.ordinals
    for _, found in groupby(enumerate(ordinals), key=lambda place: place[1] - place[0]):
        side_by_side = [ordinal for _, ordinal in found]
        yield side_by_side[0], len(side_by_side), replicas.rows


def _gone(stop: Stop) -> tuple[int, int, int, int]:
    return stop.batch, int(stop.device.partition(":")[2]), stop.row, stop.output_row


def _group(group: BatchGroup) -> Any:
    runs = tuple(run for replicas in group.in_model for run in _neighbours(replicas))
    return (
        *(group.first, group.count, group.batch_size, len(group.idle)),
        *(group.utilization, group.sample_weight, runs),
    )
