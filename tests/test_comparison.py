"""DataParallel against DDP: the facts, and the gradients of both, really computed."""

import dataclasses
import json

import pytest
import torch
import torch.distributed as dist
from ddpruns import dpdemo

import dpdemo as api
from dpdemo import comparison
from dpdemo.config import make_config
from dpdemo.contrast import Comparison

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
    return {fact.name: (fact.dp, fact.ddp) for fact in compared.facts}


def test_facts_stand_side_by_side(uneven):
    found = facts(uneven)
    assert found["Rows a device"] == ("8, 8, 8, 6", "25 on each of 4")
    assert found["Samples a step"] == ("30", "120")
    assert found["Steps an epoch"] == ("4", "1")
    assert found["Gradient of a summed loss"] == ("sum over the batch", "sum over the batch ÷ 4")


def test_bytes_follow_from_rows_and_parameters(uneven):
    """Three replicas away from device 0: 22 rows of 7 in, of 2 out; 16 parameters, of 4 bytes each."""
    found = facts(uneven)
    assert found["Bytes a step: scatter"] == (f"{22 * 7 * 4} B", "0 B")
    assert found["Bytes a step: gather"] == (f"{22 * 2 * 4} B", "0 B")
    assert found["Bytes a step: broadcast"] == (f"{3 * 16 * 4} B", "0 B")
    assert found["Bytes a step: gradients"] == (
        f"{3 * 16 * 4} B reduce-add",
        f"{6 * 16 * 4} B all-reduce (ring)",
    )


def test_each_gradient_is_explained_by_the_weights_of_its_samples(uneven):
    outside, inside, mean, summed = uneven.gradients
    assert outside.difference < 1e-6
    assert outside.why == "the same as on one device"
    assert inside.why == "samples of the short chunk of 6 count ×1.33"
    assert mean.why == "2 of 30 samples, drawn again to fill the ranks, count ×2.00"
    assert summed.why == mean.why
    assert all(check.difference > 0.001 for check in (inside, mean, summed))


def test_ranks_that_divide_the_batch_come_to_the_single_devices_gradient():
    compared = compare(gpus=3, model="rnn")
    assert {check.why for check in compared.gradients} == {"the same as on one device"}
    assert max(check.difference for check in compared.gradients) < 1e-5


def test_batchnorm_is_what_differs_in_a_cnn():
    compared = compare(gpus=2, model="cnn", batch_size=8, data_size=8)
    assert {check.why for check in compared.gradients} == {"BatchNorm sees each part of the batch alone"}
    assert facts(compared)["BatchNorm's running mean"] == (
        "device 0's chunk",
        "rank 0's, sent to 1 ranks each step",
    )


def test_a_wrong_weight_is_not_taken_for_an_explanation(monkeypatch):
    """The check of the explanation can fail: weights of another split do not fit."""
    monkeypatch.setattr(comparison, "_chunks", lambda rows, _: [range(1), range(1, rows)])
    monkeypatch.setattr(comparison, "_ddp_ways", lambda *_: iter(()))
    _, inside = compare(gpus=4).gradients
    assert inside.why == "not explained by the weights of the samples"


def test_several_nodes_are_not_for_dataparallel():
    with pytest.raises(api.UsageError, match="expected one node, on which both strategies can run, got 2"):
        compare(gpus=2, nodes=2)


class TestTheCommand:
    def test_json_is_plain_data(self, tmp_path):
        done = dpdemo(tmp_path, "compare", "--gpus", "2", "-f", "json", "--emit", "train.py")
        assert done.returncode == 0
        data = json.loads(done.stdout)
        assert data["schema"] == "dpdemo.comparison/1"
        assert {check["why"] for check in data["gradients"]} == {"the same as on one device"}
        assert "saved to train.py" in done.stderr
        assert (tmp_path / "train.py").exists()

    def test_other_forms_are_a_usage_error(self, tmp_path):
        done = dpdemo(tmp_path, "compare", "-f", "csv")
        assert done.returncode == 2
        assert "'csv' is not one of 'table', 'json', 'markdown'" in done.stderr

    def test_a_command_about_dataparallel_refuses_ddp(self, tmp_path):
        (tmp_path / "ddp.yaml").write_text("strategy: ddp")
        done = dpdemo(tmp_path, "explain", "--config", "ddp.yaml")
        assert done.returncode == 2
        assert "expected the strategy dp, which this command is about, got ddp - at ddp.yaml:1" in done.stderr
        assert "--nodes" not in dpdemo(tmp_path, "explain", "--help").stdout


@pytest.mark.parametrize("form", ["table", "markdown"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_lacks_a_sign_gets_a_plain_one(uneven, form, encoding):
    import io

    from rich.console import Console

    from dpdemo.render import contrast

    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    contrast.write(uneven, form, Console(file=file, width=80, _environ={}))
    file.seek(0)
    assert "Memory on device 0 (>=)" in file.read()


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_the_drawing_holds_every_fact_in_80_columns(uneven, form):
    import io

    from rich.console import Console

    from dpdemo.render import contrast

    assert isinstance(uneven, Comparison)
    rounded = dataclasses.replace(
        uneven, gradients=tuple(dataclasses.replace(one, difference=0.25) for one in uneven.gradients)
    )
    out = io.StringIO()
    contrast.write(rounded, form, Console(file=out, width=80, _environ={}))
    text = out.getvalue()
    assert "DistributedDataParallel" in text
    assert text.count("25 %") == 4
    for fact in uneven.facts:
        assert fact.name in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 80 or form == "markdown"
