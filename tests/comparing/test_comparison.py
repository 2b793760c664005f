"""DataParallel against DDP: the facts, and the gradients of both, really computed."""

import dataclasses
import io

import pytest
import torch
import torch.distributed as dist
from ddpruns import dpdemo
from jsonforms import keeps_to
from rich.console import Console

import dpdemo as api
from dpdemo.comparing import compare as comparison
from dpdemo.config.load import make_config
from dpdemo.render import comparison as comparison_drawing
from dpdemo.render import write
from dpdemo.reports.comparison import Comparison
from dpdemo.splitting.predict import simulate

NUM_GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed"),
    pytest.mark.skipif(NUM_GPUS > 0, reason="CUDA GPUs are visible: these gradients are of the CPU"),
]


def compare(**config):
    return comparison.compare(make_config({"strategy": "ddp", **config}))


@pytest.fixture(scope="module")
def uneven():
    return compare(gpus=4, input_size=7)


def facts(compared):
    return {name: sides for name, *sides in comparison_drawing.facts(compared)}


def test_numbers_stand_side_by_side(uneven):
    dp, ddp = uneven.dp, uneven.ddp
    assert (dp.rows_per_device, ddp.rows_per_device) == ((8, 8, 8, 6), (25, 25, 25, 25))
    assert (dp.samples_per_step, ddp.samples_per_step) == (30, 120)
    assert (dp.steps_per_epoch, ddp.steps_per_epoch) == (4, 1)
    assert (dp.sample_weight, ddp.sample_weight) == (simulate(gpus=4).sample_weight, 1.0)


def test_numbers_are_told_in_words(uneven):
    found = facts(uneven)
    assert found["Rows per device"] == ["8, 8, 8, 6", "25 on each of 4"]
    assert found["Gradient of a summed loss"] == ["sum over the batch", "sum over the batch ÷ 4"]
    assert found["Weight of a sample"][1] == "equal"


def test_bytes_follow_from_rows_and_parameters(uneven):
    """Three replicas away from device 0: 22 rows of 7 in, of 2 out; 16 parameters, of 4 bytes each."""
    dp, ddp = uneven.dp, uneven.ddp
    assert (dp.scatter_bytes, ddp.scatter_bytes) == (22 * 7 * 4, 0)
    assert (dp.gather_bytes, ddp.gather_bytes) == (22 * 2 * 4, 0)
    assert (dp.broadcast_bytes, ddp.broadcast_bytes) == (3 * 16 * 4, 0)
    assert (dp.gradient_bytes, ddp.gradient_bytes) == (3 * 16 * 4, 6 * 16 * 4)


def test_each_gradient_is_explained_by_the_weights_of_its_samples(uneven):
    outside, inside, mean, summed = uneven.gradients
    assert outside.difference < comparison.TOLERANCE
    assert outside.why == "the same as on one device"
    assert inside.why == "samples of the short chunk of 6 count 1.25 times their fair share"
    assert inside.sample_weight == pytest.approx(30 / (4 * 6))
    assert mean.why == (
        "2 of the 30 samples, drawn twice in this step to fill the ranks, count 1.88 times their fair share"
    )
    assert summed.why == mean.why
    assert all(check.difference > 0.001 for check in (inside, mean, summed))


def test_ranks_that_divide_the_batch_come_to_the_single_devices_gradient():
    compared = compare(gpus=3, model="rnn")
    assert {check.why for check in compared.gradients} == {"the same as on one device"}
    assert max(check.difference for check in compared.gradients) < comparison.TOLERANCE


def test_batchnorm_is_what_differs_in_a_cnn():
    compared = compare(gpus=2, model="cnn", batch_size=8, data_size=8)
    assert {check.why for check in compared.gradients} == {"BatchNorm sees each part of the batch alone"}
    assert facts(compared)["BatchNorm's running mean"] == [
        "device 0's chunk",
        "rank 0's, sent to 1 rank each step",
    ]


def test_the_verdict_says_how_many_more_samples_a_step_of_ddp_sees(uneven):
    said = comparison_drawing.verdict(uneven)
    assert said.startswith("DDP steps on 120 samples where DataParallel steps on 30: 4 times as many.")
    same = dataclasses.replace(uneven, ddp=dataclasses.replace(uneven.ddp, samples_per_step=30))
    assert comparison_drawing.verdict(same) == "Both see 30 samples per step."


def test_a_wrong_weight_is_not_taken_for_an_explanation(monkeypatch):
    """The check of the explanation can fail: weights of another split do not fit."""
    monkeypatch.setattr(comparison, "_chunks", lambda rows, _: [range(1), range(1, rows)])
    monkeypatch.setattr(comparison, "_ddp_ways", lambda *_: iter(()))
    _, inside = compare(gpus=4).gradients
    assert inside.why == "not explained by the weights of the samples"


@pytest.mark.parametrize(("dtype", "said"), [("float64", ""), ("bfloat16", ", to the round-off of bfloat16")])
@pytest.mark.parametrize("model", ["linear", "transformer"])
def test_the_round_off_of_a_type_is_no_difference(monkeypatch, dtype, said, model):
    monkeypatch.setattr(comparison, "_ddp_ways", lambda *_: iter(()))
    even = compare(gpus=3, dtype=dtype, model=model)
    same = "the same as on one device"
    assert {check.why for check in even.gradients} <= {same, f"{same}{said}"}
    _, inside = compare(gpus=4, dtype=dtype, model=model).gradients
    assert inside.why == "samples of the short chunk of 6 count 1.25 times their fair share"


def test_several_nodes_are_not_for_dataparallel():
    with pytest.raises(api.UsageError, match="expected one node, on which both strategies can run, got 2"):
        compare(gpus=2, nodes=2)


class TestTheCommand:
    def test_json_is_plain_data(self, tmp_path):
        done = dpdemo(tmp_path, "compare", "--gpus", "2", "-f", "json", "--emit", "train.py")
        assert done.returncode == 0
        data = keeps_to("compare", done.stdout)
        assert data["schema"] == "dpdemo.comparison/2"
        assert data["dp"]["rows_per_device"] == [15, 15]
        assert {check["why"] for check in data["gradients"]} == {"the same as on one device"}
        assert "saved to train.py" in done.stderr
        assert (tmp_path / "train.py").exists()

    def test_a_place_for_the_script_is_refused_before_any_work(self, tmp_path):
        (tmp_path / "made").mkdir()
        refused = dpdemo(tmp_path, "compare", "--gpus", "2", "--emit", "made")
        assert refused.returncode == 2
        assert "got the directory 'made' - at option `--emit`" in refused.stderr

    def test_other_forms_are_a_usage_error(self, tmp_path):
        done = dpdemo(tmp_path, "compare", "-f", "transcript")
        assert done.returncode == 2
        assert "expected one of table, json, csv, markdown, got 'transcript'" in done.stderr

    def test_a_command_about_dataparallel_refuses_ddp(self, tmp_path):
        (tmp_path / "ddp.yaml").write_text("strategy: ddp")
        done = dpdemo(tmp_path, "explain", "--config", "ddp.yaml")
        assert done.returncode == 2
        assert "expected the strategy dp, which this command is about, got ddp - at ddp.yaml:1" in done.stderr
        assert "--nodes" not in dpdemo(tmp_path, "explain", "--help").stdout


@pytest.mark.parametrize("form", ["table", "markdown"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_lacks_a_sign_gets_a_plain_one(uneven, form, encoding):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    write(uneven, form, Console(file=file, width=80, _environ={}))
    file.seek(0)
    assert "sum over the batch / 4" in " ".join(file.read().split())


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_the_drawing_holds_every_fact_in_80_columns(uneven, form):
    assert isinstance(uneven, Comparison)
    rounded = dataclasses.replace(
        uneven, gradients=tuple(dataclasses.replace(one, difference=0.25) for one in uneven.gradients)
    )
    out = io.StringIO()
    write(rounded, form, Console(file=out, width=80, _environ={}))
    text = out.getvalue()
    assert "DistributedDataParallel" in text
    assert text.count("25 %") == 4
    for name in facts(uneven):
        assert name in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 80 or form == "markdown"


@pytest.mark.parametrize("width", [40, 60, 72, 80])
def test_nothing_is_cut_off_on_a_narrow_terminal(uneven, width):
    out = io.StringIO()
    write(uneven, "table", Console(file=out, width=width, _environ={}))
    assert "…" not in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= width
