"""The model of a step against steps that others measured and published; docs/speed-up.md sums it up."""

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpdemo.results.speedup import Ends, Launches, Workload
from dpdemo.timing.links import LINKS, link_of_bandwidth
from dpdemo.timing.predict import METHOD_ERROR, predict_speedup
from dpdemo.timing.steps import FAST, SLOW, DataParallelStep, DdpStep

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "speed-up.md"
TRUTH, HELD_OUT, FOUND_LATER = "published_steps.csv", "held_out_steps.csv", "found_later_steps.csv"
MIDDLE = 0.5


@dataclass(frozen=True)
class Published:
    """One step over several GPUs, each with the rows of the step on one GPU, and its prediction.

    `whole_ms` is the time of one GPU for the rows of all: so many steps.
    """

    row: dict[str, str]
    whole_ms: float
    measured: float
    point: float
    predicted: Ends
    break_even_ms: Ends

    @property
    def error(self):
        return abs(self.point / self.measured - 1)

    @property
    def is_inside(self):
        return self.predicted.low <= self.measured <= self.predicted.high

    @property
    def is_on_a_possible_side(self):
        if self.measured > 1:
            return self.whole_ms > self.break_even_ms.low
        return self.whole_ms < self.break_even_ms.high


def read(name):
    with (HERE / name).open() as file:
        rows = list(csv.DictReader(file))
    alone = {_job(row): float(row["value"]) for row in rows if row["strategy"] == "single"}
    return [_compared(row, alone[_job(row)]) for row in rows if row["strategy"] != "single"]


def _job(row):
    return row["source"], row["model"], *row["task"].split(", ")[:2]


def _compared(row, alone_ms):
    gpus, weight = int(row["n_gpus"]), 4 * int(row["parameters"])
    counts = {name: int(row[name]) for name in ("forward", "backward", "modules", "tensors") if row[name]}
    work = Workload(
        name=row["model"],
        rows=gpus * int(row["batch_per_gpu"]),
        num_parameters=int(row["parameters"]),
        parameter_bytes=weight,
        gradient_bytes=weight,
        input_bytes=gpus * int(row["input_bytes"]),
        output_bytes=gpus * int(row["output_bytes"]),
        launches=Launches(**counts) if counts else None,
    )
    link = LINKS.get(row["link"]) or link_of_bandwidth(row["link"])
    make, place = (DataParallelStep, 0) if row["strategy"] == "DP" else (DdpStep, 1)
    step, way = make(work, link, (1 / gpus,) * gpus), predict_speedup(work, link, gpus).ways[place]
    slow, point, fast = (
        gpus * alone_ms / (alone_ms + step.extra_ms(alone_ms, place)) for place in (SLOW, MIDDLE, FAST)
    )
    predicted = Ends(slow * (1 - METHOD_ERROR), fast * (1 + METHOD_ERROR))
    measured = gpus * alone_ms / float(row["value"])
    return Published(row, gpus * alone_ms, measured, point, predicted, way.break_even_ms)


def inside(name):
    found = read(name)
    return f"{sum(each.is_inside for each in found)} of {len(found)} inside"


def test_no_error_on_the_steps_that_the_method_was_made_with_exceeds_the_allowed_one():
    assert max(step.error for step in read(TRUTH)) <= METHOD_ERROR


@pytest.mark.parametrize("name", [TRUTH, HELD_OUT, FOUND_LATER])
def test_every_published_step_is_on_a_side_of_the_break_even_that_the_prediction_allows(name):
    assert [step.row for step in read(name) if not step.is_on_a_possible_side] == []


@pytest.mark.parametrize(("name", "share"), [(TRUTH, 1), (HELD_OUT, 0.9), (FOUND_LATER, 0.9)])
def test_published_steps_are_inside_the_interval_as_often_as_claimed(name, share):
    found = read(name)
    assert sum(step.is_inside for step in found) >= share * len(found)


@pytest.mark.parametrize("name", [TRUTH, HELD_OUT, FOUND_LATER])
def test_the_docs_count_the_steps_inside_the_interval(name):
    assert f"| `tests/timing/{name}` | {inside(name)} |" in DOCS.read_text()
