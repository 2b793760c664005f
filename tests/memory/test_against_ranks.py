"""A rank that is predicted alone holds, byte for byte, what `exec --ranks` sees of the same program."""

import functools
import json
import sys
from pathlib import Path

import pytest
from processes import run
from steps_of_ranks import CASES, OF_DDP, ROWS, TRAINING

from dpdemo.memory import predict_memory
from dpdemo.results.memorydata import PARTS, Training
from dpdemo.results.wrapping import Wrapping

HERE = Path(__file__).parent
UNCOUNTED = [PARTS.index(part) for part in ("library workspaces", "block remainders")]


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


@functools.cache
def seen(num_ranks, width, names):
    """Run the program once for all cases; return the peak of each rank by case."""
    command = [str(Path(sys.executable).parent / "dpdemo"), "exec", "--ranks", str(num_ranks)]
    done = run([*command, str(HERE / "steps_of_ranks.py"), str(width), *names])
    line = next((line for line in done.stdout.splitlines() if "PEAKS" in line), None)
    assert line, done.stdout + done.stderr
    return json.loads(line.partition("PEAKS")[2])


def predicted(name, num_ranks, model):
    report = predict_memory(
        model=f"steps_of_ranks:{model}",
        gpus=num_ranks,
        batch_size=ROWS,
        inputs=[f"{ROWS}x64"],
        strategy="ddp" if name in OF_DDP else "fsdp2",
        training=Training(loss="mean", **TRAINING.get(name, {})),
        wrapping=Wrapping(**CASES[name]),
    )
    return [gpu.peak_bytes - sum(gpu.parts[part] for part in UNCOUNTED) for gpu in report.gpus]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_rank_of_two_holds_what_the_program_holds(name):
    ranks = seen(2, 256, tuple(CASES))
    assert predicted(name, 2, "Net") == [peaks[name] for peaks in ranks]


UNEVEN = ("ddp", "fsdp2", "half", "offload")


@pytest.mark.slow
@pytest.mark.parametrize("name", UNEVEN)
def test_each_of_three_ranks_with_uneven_shards_holds_what_the_program_holds(name):
    ranks = seen(3, 250, UNEVEN)
    assert predicted(name, 3, "uneven") == [peaks[name] for peaks in ranks]
