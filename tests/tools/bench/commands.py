"""Time dpdemo's commands against the tutorial's loop, as whole processes that write to a file.

Every figure is a ratio within this one run: the commands take turns, and the medians are compared.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quick import QUICK, line, medians

HERE = Path(__file__).parent
PYTHON = sys.executable
DPDEMO = [str(Path(PYTHON).parent / "dpdemo")]
TUTORIAL = [PYTHON, str(HERE / "tutorial.py")]
EMPTY = [PYTHON, str(HERE / "empty.py"), "--gpus", "8"]
MANY = ["--gpus", "128", "--batch-size", "1000007", "--data-size", str(10**9)]
AGAINST_TUTORIAL = {"--help": 0.15, "simulate --gpus 8": 0.15, f"simulate {' '.join(MANY)}": 0.15, "run": 1.1}
AGAINST_EMPTY = {"--help": 1.25, "simulate --gpus 8": 1.12, "simulate --help": 1.5}
VIRTUAL = "run --virtual --gpus 0,1,2"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With compiled files, as an installed program has them."""


def wall_seconds(command: list[str]) -> float:
    """Run a command once, its output to a file, and give its wall time."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        done = subprocess.run(command, check=False, stdout=out, stderr=out, env=ENVIRONMENT)
        took = time.perf_counter() - start
        if done.returncode:
            out.seek(0)
            sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{out.read().decode()}")
        return took


def take_turns(many: int, *commands: list[str]) -> list[float]:
    """Run each command in turn, several rounds, and give the medians."""
    return medians(many, *commands, clock=wall_seconds)


def peak_bytes(command: list[str]) -> int:
    """Run a command and give the peak of its resident memory."""
    code = (
        "import resource,subprocess,sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
    )
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([PYTHON, "-c", code, *command], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def whole_processes() -> None:
    """Compare whole processes at the default config."""
    names = [*{**AGAINST_TUTORIAL, **AGAINST_EMPTY}, VIRTUAL]
    tutorial, empty, *taken = take_turns(9, TUTORIAL, EMPTY, *([*DPDEMO, *name.split()] for name in names))
    found = dict(zip(names, taken, strict=True))
    for what, yardstick, goals in (
        ("tutorial", tutorial, AGAINST_TUTORIAL),
        ("a Typer command that does nothing", empty, AGAINST_EMPTY),
        ("run", found["run"], {VIRTUAL: 1.25}),
    ):
        print(f"against {what}, {yardstick * 1000:.0f} ms:")
        for name, goal in goals.items():
            line(f"dpdemo {name}", found[name] / yardstick, goal, f"{found[name] * 1000:.0f} ms")


def samples_per_second() -> None:
    """Compare the loops alone: the time of 10^6 samples less that of 100."""
    sizes = ("100", "1000" if QUICK else "1000000")
    commands = [[*command, size] for command in (TUTORIAL, [*DPDEMO, "run", "--data-size"]) for size in sizes]
    few, many, our_few, our_many = take_turns(3, *commands)
    line("run, 10^6 samples, against the tutorial", (our_many - our_few) / (many - few), 1 / 3)


def memory() -> None:
    """Compare the peak memory of a long epoch with that of a short one."""
    command = [*DPDEMO, "run", "-q", "--batch-size", "1000", "--data-size"]
    short, long = (peak_bytes([*command, str(size)]) for size in (10**4, 10**5 if QUICK else 10**8))
    line("run, 10^8 samples: peak memory", long / short, 1.05, f"{long >> 20} MiB")


if __name__ == "__main__":
    whole_processes()
    samples_per_second()
    memory()
