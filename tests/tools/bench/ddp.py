"""Time `dpdemo run --strategy ddp` against a bare torchrun script.

Every figure is a ratio within this one run: the commands take turns, and the medians are compared.
"""

import os
import sys
from pathlib import Path

from commands import DPDEMO, PYTHON, row, take_turns
from quick import rounds

BARE = str(Path(__file__).parent / "bare_ddp.py")
PROCESSES = {
    "bare torchrun script, 3 processes": [
        PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", BARE,
    ],
    "dpdemo run --strategy ddp --set processes=3": [
        *DPDEMO, "run", "--strategy", "ddp", "--set", "processes=3",
    ],
}  # fmt: skip


def compare(commands: dict[str, list[str]], times: int, goal: float) -> None:
    """Run two commands alternately, and divide the second's time by the first's."""
    (yardstick, first), (name, second) = take_turns(commands, times).items()
    row(yardstick, f"{first * 1000:.0f} ms", 1.0, "", met=True)
    row(name, f"{second * 1000:.0f} ms", second / first, f"<= {goal}", met=second / first <= goal)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.stdout.reconfigure(line_buffering=True)
    print(f"{'command':<44} {'median':>14} {'ratio':>8}   {'goal':<10}")
    compare(PROCESSES, rounds(7), goal=1.15)
