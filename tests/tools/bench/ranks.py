"""Time `dpdemo exec --ranks` against the same script with gloo on the CPU, and against plain processes.

Every figure is a ratio within this one run: the commands take turns, and the medians are compared.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import DPDEMO, PYTHON, row, take_turns
from quick import QUICK, rounds

STEP = str(Path(__file__).parent / "ddp_step.py")
RANKS = "import torch.distributed as dist; dist.init_process_group('nccl'); dist.destroy_process_group()"
IMPORTS = """
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", "import torch"]) for _ in range(4)]
sys.exit(any(process.wait() for process in started))
"""


def step_seconds(command: list[str]) -> float:
    """Run the script on two ranks, and return the median of its steps."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return float(done.stdout)


def steps(width: int, goal: float) -> None:
    """Compare a step of two ranks on virtual GPUs with one of gloo, plain and in an empty dispatch mode."""
    script = [STEP, str(width), "4" if QUICK else "30"]
    plain = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
    watched = [*DPDEMO, "exec", "--quiet", "--ranks", "2", *script]
    turns = [list(map(step_seconds, (plain, [*plain, "--dispatched"], watched))) for _ in range(rounds(7))]
    bare, dispatched, ours = map(statistics.median, zip(*turns, strict=True))
    name = f"a DDP step, 8 layers of width {width}, against gloo"
    row(name, f"{ours * 1000:.1f} ms", ours / bare, f"<= {goal}", met=ours / bare <= goal)
    row(
        f"gloo in an empty dispatch mode, width {width}",
        f"{dispatched * 1000:.1f} ms",
        dispatched / bare,
        "none",
        met=True,
    )


def start() -> None:
    """Compare four ranks up and down with four processes that import torch."""
    plain, watched = "four processes that import torch", "four ranks up and down"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(RANKS)
        exec_ranks = [*DPDEMO, "exec", "--ranks", "4", str(script)]
        found = take_turns({plain: [PYTHON, "-c", IMPORTS], watched: exec_ranks}, rounds(7))
    ratio = found[watched] / found[plain]
    row(watched, f"{found[watched] * 1000:.0f} ms", ratio, "<= 2", met=ratio <= 2)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.stdout.reconfigure(line_buffering=True)
    print(f"{'command':<50} {'median':>14} {'ratio':>8}   {'goal':<10}")
    steps(1024, 1.10)
    steps(256, 1.35)
    start()
