"""What is predicted over a grid is what `memory` and `speedup` say of each cell by itself."""

import subprocess
import sys

import pytest

from dpdemo import RunError, UsageError, predict_memory, sweep
from dpdemo.config.load import make_config
from dpdemo.reports.speedup import Anchor
from dpdemo.sweeping.predicted import _grows, _halved
from dpdemo.sweeping.questions import Failure, Need
from dpdemo.timing import predict_speedup
from dpdemo.timing.links import LINKS
from dpdemo.timing.observe import observe_workload
from dpdemo.timing.workload import builtin_workload

MODEL = """
from torch import nn

class Normed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 4096), nn.BatchNorm1d(4096), nn.Linear(4096, 2))
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "normed.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return "normed.py:Normed"


def cells(report):
    for line in report.lines:
        for place, size in enumerate(report.batch_sizes):
            yield size, line.gpus, line.values[place], line.answer(place)


def test_the_memory_of_each_cell_is_what_memory_predicts_for_it(model):
    report = sweep("1,3", "2,3000,9000", of="memory", model=model, inputs=["32x8"])
    for size, gpus, value, _ in cells(report):
        if value is None:
            continue
        alone = predict_memory(model=model, gpus=gpus, batch_size=size, inputs=["32x8"])
        assert value == max(gpu.needed_bytes for gpu in alone.gpus), (size, gpus)
    assert [answer for _, _, _, answer in cells(report)] == ["", "", "", "fails", "", ""]
    assert "Expected more than 1 value per channel" in report.basis.failure


@pytest.mark.parametrize("capacity", ["650MiB", "760MiB", "900MiB", "4GiB"])
def test_what_is_said_to_fit_is_what_memory_says_of_every_cell(model, capacity):
    given = {"model": model, "inputs": ["32x8"], "gpu_memory": capacity}
    report = sweep("1,2", "4-4096:x4", of="fits", **given)
    for size, gpus, value, answer in cells(report):
        alone = predict_memory(gpus=gpus, batch_size=size, **given)
        assert answer == alone.answer, (size, gpus)
        assert value in {None, max(gpu.needed_bytes for gpu in alone.gpus)}
    found = report.basis
    assert found.num_predicted + found.num_between == report.num_cells


def test_fewer_steps_are_predicted_than_there_are_cells_and_the_report_says_how_many():
    report = sweep(2, "4-64:2", of="fits", gpu_memory="1GiB")
    assert (report.basis.num_predicted, report.basis.num_between) == (2, 29)
    assert report.lines[0].values[1:-1] == [None] * 29


def test_a_batch_that_leaves_a_sample_alone_is_always_predicted(model):
    report = sweep(2, "3-9", of="fits", gpu_memory="4GiB", model=model, inputs=["32x8"])
    assert report.lines[0].answers == ("fails", *["fits"] * 6)
    assert report.basis.num_predicted == 3  # 3, which leaves one sample, and the ends of the rest


def test_a_line_whose_need_falls_is_no_line_to_conclude_from():
    known = {0: Need(5, 5), 4: Need(9, 9), 2: Need(7, 7)}
    assert _grows(known)
    assert not _grows({**known, 3: Need(6, 6)})
    assert not _grows({**known, 3: Failure("too odd")})


@pytest.mark.parametrize("edge", range(8))
def test_where_a_line_stops_fitting_is_found_by_halves(edge):
    asked = []

    def answer(place):
        asked.append(place)
        return "fits" if place < edge else "does not fit"

    found = _halved(range(7), answer)
    assert [found[place] for place in range(7)] == ["fits"] * min(edge, 7) + ["does not fit"] * (7 - edge)
    assert len(asked) == len(set(asked)) <= 5


@pytest.mark.parametrize("steps", [(), ("40ms@32",), ("9ms@8", "40ms@32")])
def test_the_speedup_of_each_cell_is_what_speedup_predicts_for_it(steps):
    report = sweep("1-3", "8,33", of="speedup", model="cnn", link="pcie3", one_gpu_step=steps)
    anchors = [Anchor(ms=float(step.partition("ms@")[0]), rows=int(step.partition("@")[2])) for step in steps]
    for size, gpus, value, answer in cells(report):
        workload = builtin_workload(make_config({"model": "cnn", "batch_size": size}))
        alone = predict_speedup(workload, LINKS["pcie3"], [gpus], anchors).way(gpus, "DataParallel").strong
        if steps:
            assert (value, answer) == (alone.speedup.point, alone.verdict)
        else:
            assert value == (alone.break_even_ms and alone.break_even_ms.point)
            assert answer == ("never pays" if value is None else "pays if longer")
    assert report.measure == ("speedup" if steps else "break-even")


def test_the_workload_of_a_model_of_ones_own_is_that_of_each_batch(model):
    report = sweep(2, "8,64", of="speedup", model=model, inputs=["32x8"], link="pcie4")
    for size, _, value, _ in cells(report):
        workload = observe_workload(make_config({"model": model, "batch_size": size}), ["32x8"])
        alone = predict_speedup(workload, LINKS["pcie4"], [2]).way(2, "DataParallel").strong
        assert value == alone.break_even_ms.point


def test_the_best_cell_is_of_the_nearest_batch_and_of_fewest_gpus(model):
    fits = sweep("1-4", "512,4096", of="fits", near=4000, gpu_memory="740MiB", model=model, inputs=["32x8"])
    size, gpus = fits.best.batch_size, fits.best.gpus
    fitting = {(size, gpus) for size, gpus, _, answer in cells(fits) if answer != "does not fit"}
    assert size == max(size for size, _ in fitting)
    assert gpus == min(gpus for other, gpus in fitting if other == size)
    assert fits.largest(fits.lines[gpus - 1]) == size


def test_a_model_that_can_run_no_batch_is_an_error_not_a_map(model):
    with pytest.raises(RunError, match="expected the model to take a batch of 4, got RuntimeError"):
        sweep("1-2", "4,8", of="memory", model=model, inputs=["32x9"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"of": "fits"}, "expected what each GPU can hold, got nothing"),
        ({"of": "fits", "gpu_memory": "much"}, "expected a size such as 24GiB"),
        ({"of": "speedup"}, "expected how the GPUs are joined"),
        ({"of": "speedup", "link": "string"}, "expected one of pcie3"),
        ({"of": "speedup", "link": "pcie3", "one_gpu_step": "49ms"}, "expected a time with its rows"),
        (
            {"of": "speedup", "link": "pcie3", "one_gpu_step": ("4ms@8", "5ms@8")},
            "expected different numbers of rows, got 8, 8",
        ),
        ({"of": "memory", "weights": (1, 2), "gpus": 2}, "expected a batch that is cut as torch does"),
        ({"of": "memory", "gpus": "1-200", "batch_size": "1-200"}, "at most 10000 cells"),
        ({"of": "memory", "model": "nowhere.py:Net"}, "nowhere.py"),
    ],
)
def test_what_a_prediction_lacks_is_said_before_it_begins(given, said):
    gpus, sizes = given.pop("gpus", 2), given.pop("batch_size", 8)
    if "weights" in given:
        given["config"] = make_config({"gpus": 2, "weights": given.pop("weights")})
    with pytest.raises(UsageError, match=said):
        sweep(gpus, sizes, **given)


def test_the_speedup_of_a_built_in_model_imports_no_torch():
    sweep_it = "import sys, dpdemo; dpdemo.sweep('1-4', of='speedup', link='pcie3')"
    code = f"{sweep_it}; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
