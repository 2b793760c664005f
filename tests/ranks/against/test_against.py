"""Whole programs under `exec --ranks 2 --check`: right ones are equal, wrong ones are named with a line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
RIGHT = [
    "right.py",
    "batches.py",
    "gan.py",
    "fsdp.py fsdp1",
    "fsdp.py bfloat16",
    "amp.py float16",
    "parallel.py",
    "parallel.py both",
]
WRONG = {
    "wrong.py": [
        "1/2 of one process's: the loss is a sum over a rank's rows",
        "2 times one process's: a mean is multiplied by the number of ranks, 2",
        "the loss is a mean, divided by 2; the average over ranks divides once more",
        "Each rank steps with gradients of its own, never averaged over the ranks",
        "over different numbers of elements",
        "compares the rows of a rank with each other",
        "a statistic of a rank's rows",
        "a function of a mean over a rank's rows (Sqrt)",
        "which are not what their passes made",
        "Only rank 0 of 2 step with a gradient for 2.weight",
        "gradients are summed over 2 ranks and not divided by their number",
        "gradients are divided by the number of ranks once too often",
        "a gradient of its own for 0.bias, 2.bias",
        "clipped before they are averaged",
    ],
    "norms.py own": ["BatchNorm normalizes each rank's rows by themselves"],
    "norms.py own sum": ["the loss is a sum over a rank's rows"],
    "fsdp.py fsdp2 sum": ["the loss is a sum over a rank's rows"],
}


def checked(folder, words):
    program, *arguments = words.split()
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", "--check", "--report", "report.json"]
    command += [str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "report.json").read_text("utf-8")), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", RIGHT)
def test_a_right_program_is_equal_to_one_process(tmp_path, words):
    report, text = checked(tmp_path, words)
    found = report["comparison"]
    assert (found["verdict"], found["mistakes"]) == ("equal", []), found
    assert found["difference"] <= found["tolerance"]
    assert "Equal to one process: the gradients of steps " in text


@pytest.mark.slow
@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_program_is_named(tmp_path, words):
    report, text = checked(tmp_path, words)
    found = report["comparison"]
    assert found["verdict"] == "different", found
    assert len(found["mistakes"]) == len(WRONG[words])
    for mistake, part in zip(found["mistakes"], WRONG[words], strict=True):
        assert part in mistake["text"]
        assert Path(mistake["at"].rpartition(":")[0]).name == words.split()[0]
    assert "Different from one process" in text


@pytest.mark.slow
def test_a_program_that_resumes_from_its_own_files_starts_as_the_ranks_did(tmp_path):
    report, _ = checked(tmp_path, "zero.py")
    assert report["comparison"]["verdict"] == "equal"
    saved = (tmp_path / "model.pt").read_bytes()
    report, _ = checked(tmp_path, "zero.py")  # which resumes, and writes over the file
    assert report["comparison"]["verdict"] == "not checked"
    assert "the ranks have written over" in report["comparison"]["reason"]
    assert (tmp_path / "model.pt").read_bytes() != saved


def test_steps_need_the_comparison(tmp_path):
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", "--steps", "2", "train.py"]
    (tmp_path / "train.py").write_text("")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "--ranks N --check" in done.stderr
