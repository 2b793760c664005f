"""The lesson of the offline page: the case that it opens with, and golden cases of `simulate`."""

from collections.abc import Iterator
from itertools import groupby

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.config.fields import Config
from dpdemo.errors import UsageError
from dpdemo.page.lesson import Answer, Given, Group, Lesson, Stop
from dpdemo.results.batches import BatchGroup
from dpdemo.results.batches import Stop as SplitStop
from dpdemo.results.devices import ordinal_of
from dpdemo.splitting.predict import predict
from dpdemo.splitting.shapes import predicted_devices

MOST_BATCH = 100_000
MOST_DATA = 10**9
DEFAULT_GPUS = 3
"""Those of the tutorial, where a config names none."""


def make_lesson(config: Config) -> Lesson:
    """Make the content of the page.

    Raises:
        UsageError: if the config is larger than the page can draw.

    """
    gpus = DEFAULT_GPUS if config.gpus is None else len(predicted_devices(config))
    for key, value, most in (
        ("gpus", gpus, MAX_GPUS),
        ("batch_size", config.batch_size, MOST_BATCH),
        ("data_size", config.data_size, MOST_DATA),
    ):
        if value > most:
            raise UsageError(
                f"expected at most {most}, the most that the page draws, got {value}",
                key=key,
                hint="`dpdemo simulate` has no such limit",
            )
    cases = tuple((given, answer_of(given)) for given in golden_cases())
    return Lesson(config.batch_size, config.data_size, gpus, config.drop_last, cases)


def golden_cases() -> Iterator[Given]:
    """Yield cases for every branch of the rules: short and idle, lone, dropped."""
    for batch, data in ((30, 100), (1, 1), (7, 20), (64, 1000), (65, 65), (10, 9), (5, 5000), (36, 36 * 4)):
        for gpus in (1, 2, 3, 4, 7, 8, 16):
            for drop_last in (False, True):
                if not (drop_last and batch > data):
                    yield batch, data, gpus, drop_last, data * 2 // 3
    yield MOST_BATCH, MOST_DATA, MAX_GPUS, False, MOST_DATA - 1
    yield MOST_BATCH - 1, MOST_DATA - 1, MAX_GPUS - 1, False, MOST_DATA // 3


def answer_of(given: Given) -> Answer:
    """Return the answer of `simulate` to a case."""
    batch, data, gpus, drop_last, sample = given
    report = predict(
        Config(batch_size=batch, data_size=data, gpus=gpus, drop_last=drop_last, trace_sample=sample)
    )
    totals, stops = report.totals, report.trace.stops if report.trace else ()
    sums = (totals.batches, totals.samples, totals.utilization, totals.sample_weight)
    return tuple(_group(group) for group in report.batches), sums, _stop(stops[0]) if stops else None


def _stop(stop: SplitStop) -> Stop:
    return stop.batch, ordinal_of(stop.device), stop.row, stop.output_row


def _group(group: BatchGroup) -> Group:
    alike = (tuple(run) for _, run in groupby(group.in_model, key=lambda replica: replica.rows))
    runs = tuple((ordinal_of(run[0].device), len(run), run[0].rows) for run in alike)
    facts = (group.first, group.count, group.batch_size, len(group.idle))
    return (*facts, group.utilization, group.sample_weight, runs)
