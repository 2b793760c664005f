"""`dpdemo record` and `dpdemo replay` as their user calls them."""

import dataclasses
import json

import pytest
import torch

import dpdemo as package
from dpdemo.reports.recording import load_recording
from dpdemo.reports.replay import Replay

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is visible on this machine")


@pytest.fixture
def file(dpdemo, tmp_path):
    path = tmp_path / "r.json"
    assert dpdemo("record", "--virtual", "--gpus", "0,1,2", path).code == 0
    return path


@needs_no_gpu
def test_a_recording_is_written_and_what_to_do_with_it_is_said(dpdemo, tmp_path):
    path = tmp_path / "r.json"
    done = dpdemo("record", "--virtual", "--gpus", "0,1", "--batches", "2", path)
    assert (done.code, done.out) == (0, "")
    assert f"recorded 2 of 4 batches, 20 tensors in {path}; `dpdemo replay {path}` repeats it" in done.err
    assert load_recording(path) == package.record(gpus=[0, 1], virtual=True, batches=2)
    assert dpdemo("record", "-q", path).err == ""


@needs_no_gpu
def test_a_replay_says_identical_and_where_it_took_place(dpdemo, file):
    done = dpdemo("replay", file)
    assert done.code == 0
    assert done.out.startswith("Identical: all 46 tensors, 4 batches, forward and backward\n")
    assert done.err == "hint: replayed on virtual cuda:0–2\n"
    assert dpdemo("replay", "-q", file).err == ""


@needs_no_gpu
def test_another_process_repeats_it_too(program, file):
    done = program("replay", file, "--virtual")
    assert (done.code, done.out.splitlines()[0][:9]) == (0, "Identical")


@needs_no_gpu
def test_a_replay_that_differs_exits_1_and_names_the_place(dpdemo, file):
    whole = json.loads(file.read_text())
    whole["batches"][1]["tensors"][7]["sum"] += 1
    file.write_text(json.dumps(whole))
    done = dpdemo("replay", file)
    assert done.code == 1
    assert done.out.startswith("Different: first at batch 2, output\n")
    assert "apart     1, relative" in done.out


@needs_no_gpu
def test_one_gpu_can_stand_in_for_three(dpdemo, file):
    done = dpdemo("replay", file, "--gpus", "0,0,0")
    assert done.code == 0
    assert "virtual cuda:0, cuda:0, cuda:0" in done.err


@needs_no_gpu
def test_the_json_holds_the_outcome(dpdemo, file):
    found = json.loads(dpdemo("replay", file, "-f", "json").out)
    assert (found["schema"], found["verdict"], found["first"]) == ("dpdemo.replay/1", "identical", None)
    assert set(found) == {"schema", *(field.name for field in dataclasses.fields(Replay))}


@needs_no_gpu
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["replay", "none.json"],
            "expected a recording, got a file that cannot be read as JSON (No such file",
        ),
        (
            ["replay", "none.json", "--gpus", "x"],
            "expected a count such as 3, ordinals such as 0,2 or 0-3, or `all`, got 'x'",
        ),
        (["record", "r.csv"], "expected a file ending in .json, got 'r.csv' - at argument `FILE`"),
        (["record", "no/such/r.json"], "expected a file in an existing folder"),
        (["record", "--batches", "0", "r.json"], "expected 1 or more batches, got 0"),
        (["record", "--gpus", "0,1", "r.json"], "expected visible GPUs, got cuda:0, cuda:1"),
    ],
)
def test_a_mistake_exits_2_and_leaves_nothing(dpdemo, tmp_path, monkeypatch, args, said):
    monkeypatch.chdir(tmp_path)
    done = dpdemo(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_record_has_the_config_and_no_options_of_a_report(dpdemo):
    said = dpdemo("record", "--help").out
    assert "--batch-size" in said
    assert not [option for option in ("--save", "--format", "--verbose") if option in said]


OWN = """
from torch import nn

print("imported")

class Net(nn.Linear):
    def __init__(self):
        super().__init__(5, 2)
"""


@pytest.mark.slow
@needs_no_gpu
def test_code_that_a_recording_names_runs_only_when_it_is_trusted(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_net.py").write_text(OWN)
    program("record", "-q", "--virtual", "--model", "own_net.py:Net", "r.json")
    refused = program("replay", "r.json")
    assert (refused.code, refused.out) == (2, "")
    assert "got `own_net.py:Net`, whose code a replay would import and run - at r.json" in refused.err
    assert "--trust" in refused.err
    trusted = program("replay", "r.json", "--trust")
    assert trusted.code == 0
    assert trusted.out.startswith("imported\n")
    assert "hint: imports and runs the model `own_net.py:Net`" in trusted.err
