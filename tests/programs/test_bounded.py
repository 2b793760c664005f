"""A program of a thousand steps: what is printed of it is bounded, whatever it makes at each of them."""

import re
import subprocess
import sys

import pytest
from casetable import Linear, x
from processes import PATIENCE_SECONDS
from torch import nn

from dpdemo.programs import callcheck
from dpdemo.programs.callcheck import CallCheck
from dpdemo.programs.subjects import MAX_NOTES
from dpdemo.virtual import virtual_gpus

STEPS = """
import torch
from torch import nn
from torch.nn.parallel import data_parallel, parallel_apply

x = torch.ones(2, 1, device="cuda")
for step in range(1_000):
    parallel_apply([lambda x: x], [(x,)])
    if step % 5 == 0:
        data_parallel(nn.Linear(1, 1, device="cuda"), x, [0])
        nn.DataParallel(nn.Linear(1, 1, device="cuda"), [0])(x)
"""


@pytest.mark.slow
def test_a_thousand_steps_are_an_entry_for_each_place(tmp_path):
    (tmp_path / "steps.py").write_text(STEPS)
    done = subprocess.run(
        [sys.executable, "-m", "dpdemo", "exec", "--gpus", "2", "--check", "steps.py"],
        cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE_SECONDS, check=True,
    )  # fmt: skip
    assert re.findall(r"\w+\(\S+\) #\d.*", done.stderr) == [
        "parallel_apply(<lambda>) #1 on cuda:0: 1000 calls",
        "data_parallel(Linear) #2 on cuda:0, 200 modules: 200 calls",
        "DataParallel(Linear) #3 on cuda:0, wrapped 200 times: 200 calls",
    ]
    assert len(done.stderr.splitlines()) < 40


def test_notes_that_are_worded_anew_at_each_call_are_bounded(monkeypatch):
    numbers = iter(range(1000))

    def failing(*_, **__):
        raise ValueError(f"part {next(numbers)} failed")

    with virtual_gpus(2):
        wrapper = nn.DataParallel(Linear().cuda())
        check = CallCheck()
        monkeypatch.setattr(callcheck, "rehearse", failing)
        with check.watching():
            for _ in range(MAX_NOTES + 5):
                wrapper(x(8))
    notes = check.report().notes
    assert sum("could not be looked at" in note for note in notes) == MAX_NOTES
    assert notes[-1] == "5 more of this kind, in other words"
