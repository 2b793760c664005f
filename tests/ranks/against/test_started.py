"""Programs that start their ranks themselves, on one GPU: what they may start there, and the comparison."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from processes import run

from dpdemo.ranks.against import taps
from dpdemo.ranks.against.settings import Settings
from dpdemo.ranks.against.started import NotComparedError, run_alone
from dpdemo.ranks.events import Joined, Remark
from dpdemo.ranks.observe.notes import Notes

PROGRAM = Path(__file__).parent / "programs" / "started.py"
NOTING = """
import os, pathlib, sys, time
for line in {lines!r}:
    where = pathlib.Path(os.environ["DPDEMO_RANK_NOTES"], f"{{os.getpid()}}.jsonl")
    where.write_bytes(line)
time.sleep({seconds})
"""


def alone(folder, *joined, seconds=0, on_look=lambda: None):
    lines = [Joined(0, size, "world").to_line() for size in joined]
    command = [sys.executable, "-S", "-c", NOTING.format(lines=lines, seconds=seconds)]
    return run_alone(command, dict(os.environ), str(folder), on_look)


def test_the_one_rank_is_returned_once_its_process_has_ended(tmp_path):
    found = alone(tmp_path, 1)
    assert (found.code, [log.world for log in found.ranks]) == (0, [(0, 1)])


@pytest.mark.parametrize(("joined", "many"), [((), "no rank"), ((2,), "2 ranks, too")])
def test_a_program_that_starts_none_or_several_on_one_gpu_is_not_compared(tmp_path, joined, many):
    with pytest.raises(NotComparedError, match=f"on one GPU the program starts {many}"):
        alone(tmp_path, *joined, seconds=900 * len(joined))  # several are stopped at once


def test_an_interrupted_run_is_stopped_and_costs_the_comparison_alone(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(NotComparedError, match="interrupted"):
        alone(tmp_path, seconds=900, on_look=interrupt)


def test_a_rank_whose_pytorch_cannot_be_followed_is_not_compared(tmp_path, monkeypatch):
    def put(_):
        raise AttributeError("no _SingleProcessDataLoaderIter")

    monkeypatch.setattr(taps, "_put", put)
    notes = Notes(tmp_path)
    taps._install(Settings(str(tmp_path), 2), notes)
    reason = "PyTorch could not be followed: AttributeError: no _SingleProcessDataLoaderIter"
    assert Remark(reason, is_fatal=True).to_line() in notes.path.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="real GPUs are visible on this machine")
@pytest.mark.parametrize(
    ("words", "verdict", "text"),
    [
        ("spawn mean", "equal", "Equal to one process: the gradients of steps 1–3 on 2 ranks"),
        ("fork sum", "different", "the loss is a sum over a rank's rows"),
    ],
)
def test_ranks_that_a_program_starts_are_compared_with_the_one_that_it_starts_on_one_gpu(
    tmp_path, words, verdict, text
):
    command = [sys.executable, "-m", "dpdemo", "exec", "--gpus", "2", "--check", "--save", "report.json"]
    done = run([*command, str(PROGRAM), *words.split()], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["ranks"][0]["comparison"]["verdict"] == verdict, done.stderr
    assert text in " ".join(done.stderr.split())
    assert "DataParallel call" not in done.stderr
    assert (tmp_path / "runs.txt").read_text("utf-8") == "2\n"  # the second run writes elsewhere
    assert (tmp_path / "trained.pt").exists()
