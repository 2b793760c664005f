"""Whole programs under `exec --ranks 2 --check`: right ones are equal, wrong ones are named with a line."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
RIGHT = [
    "ddp.py",
    "ddp.py seeds",
    "by_hand.py",
    "batches.py",
    "tokens.py ddp",
    "tokens.py fsdp2",
    "fsdp.py fsdp1",
    "fsdp.py fsdp1 original",
    "fsdp.py fsdp2",
    "fsdp.py bfloat16",
    "amp.py float16",
    "amp.py bfloat16",
    "norms.py synced",
    "contrastive.py gathered",
    "gan.py",
    "zero.py",
    "accelerated.py",
    "trained.py causal",
    "lightened.py",
]
WRONG = {
    "ddp.py sum": "the loss is a sum over a rank's rows",
    "ddp.py times+ranks": "ddp.py:38 multiplies it by the number of ranks",
    "ddp.py module": "never averaged over the ranks",
    "ddp.py last+batch": "over different numbers of elements (6 and 4)",
    "by_hand.py summed": "gradients are summed over 2 ranks and not divided",
    "by_hand.py some": "a gradient of its own for 0.bias, 2.bias",
    "by_hand.py clipped+before": "clipped before they are averaged",
    "by_hand.py all+passes": "a rank makes 2 of the 4 backward passes",
    "by_hand.py seeds": "The parameters differ between ranks from the start",
    "batches.py all+passes": "a rank makes 2 of the 4 backward passes",
    "tokens.py ddp means": "over different numbers of elements",
    "tokens.py fsdp2 means": "over different numbers of elements",
    "fsdp.py fsdp2 sum": "the loss is a sum over a rank's rows",
    "amp.py float16 sum": "the loss is a sum over a rank's rows",
    "amp.py bfloat16 uneven": "averaged with equal weights, which one process has not",
    "norms.py own": "BatchNorm normalizes each rank's rows by themselves",
    "norms.py own sum": "the loss is a sum over a rank's rows",
    "contrastive.py local": "compares the rows of a rank with each other",
    "contrastive.py covariance": "a statistic of a rank's rows",
    "trained.py classes": "multiplies it by the number of ranks",
}
NOT_CHECKED = {"fsdp.py fsdp2 early+optimizer": "no parameter of the optimizer got a gradient"}
_NEEDS = {"accelerated.py": "accelerate", "trained.py": "transformers", "lightened.py": "lightning"}


def checked(folder, words):
    program, *arguments = (word.replace("+", " ") for word in words.split())
    if find_spec(_NEEDS.get(program, "torch")) is None:
        pytest.skip(f"{_NEEDS[program]} is not installed")
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
    (mistake,) = found["mistakes"]
    assert WRONG[words] in mistake["text"]
    assert Path(mistake["at"].rpartition(":")[0]).name == words.split()[0]
    assert "Different from one process" in text


@pytest.mark.slow
@pytest.mark.parametrize("words", NOT_CHECKED)
def test_a_program_that_cannot_be_compared_is_not_checked(tmp_path, words):
    report, text = checked(tmp_path, words)
    assert report["comparison"]["verdict"] == "not checked"
    assert NOT_CHECKED[words] in report["comparison"]["reason"]
    assert "Not checked against one process" in text


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
