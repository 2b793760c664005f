"""Time dpdemo's commands against the tutorial's loop, as whole processes that write to a file.

Every figure is a ratio within this one run: the commands take turns, and the medians are compared.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from quick import QUICK, rounds

HERE = Path(__file__).parent
PYTHON = sys.executable
DPDEMO = [str(Path(PYTHON).parent / "dpdemo")]
TUTORIAL = [PYTHON, str(HERE / "tutorial.py")]
VIRTUAL = "dpdemo run --virtual --gpus 0,1,2"
EMPTY = "a Typer command that does nothing"
WHOLE = {
    "tutorial": TUTORIAL,
    EMPTY: [PYTHON, str(HERE / "empty.py"), "--gpus", "8"],
    "dpdemo --help": [*DPDEMO, "--help"],
    "dpdemo simulate --gpus 8": [*DPDEMO, "simulate", "--gpus", "8"],
    "dpdemo simulate --help": [*DPDEMO, "simulate", "--help"],
    "dpdemo simulate, 10^9 samples": [
        *DPDEMO, "simulate", "--gpus", "128", "--batch-size", "1000007", "--data-size", str(10**9),
    ],
    "dpdemo run": [*DPDEMO, "run"],
    VIRTUAL: [*DPDEMO, "run", "--virtual", "--gpus", "0,1,2"],
}  # fmt: skip
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""With compiled files, as an installed program has them."""
GOALS = {
    "dpdemo --help": 0.15,
    "dpdemo simulate --gpus 8": 0.15,
    "dpdemo simulate, 10^9 samples": 0.15,
    "dpdemo run": 1.10,
}
AGAINST_EMPTY = {"dpdemo --help": 1.25, "dpdemo simulate --gpus 8": 1.12, "dpdemo simulate --help": 1.5}


def seconds(command: list[str]) -> float:
    """Run a command once, its output to a file, and give its wall time."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        done = subprocess.run(command, check=False, stdout=out, stderr=out, env=ENVIRONMENT)
        took = time.perf_counter() - start
        if done.returncode:
            out.seek(0)
            sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{out.read().decode()}")
        return took


def take_turns(commands: dict[str, list[str]], turns: int) -> dict[str, float]:
    """Run each command in turn, several rounds, and give the medians."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, command in commands.items():
            times[name].append(seconds(command))
    return {name: statistics.median(found) for name, found in times.items()}


def peak_bytes(command: list[str]) -> int:
    """Run a command and give the peak of its resident memory."""
    code = (
        "import resource,subprocess,sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
    )
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([PYTHON, "-c", code, *command], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def row(name: str, value: str, ratio: float, goal: str, *, met: bool) -> None:
    """Print one line of the table."""
    print(f"{name:<44} {value:>14} {ratio:>8.3f}   {goal:<10} {'met' if met else 'MISSED'}")


def whole_processes() -> None:
    """Compare whole processes at the default config."""
    medians = take_turns(WHOLE, rounds(9))
    for name, median in medians.items():
        ratio = median / medians["tutorial"]
        goal = GOALS.get(name)
        row(
            name,
            f"{median * 1000:.0f} ms",
            ratio,
            f"<= {goal}" if goal else "1",
            met=not goal or ratio <= goal,
        )
    ratio = medians[VIRTUAL] / medians["dpdemo run"]
    row(
        "run --virtual, against run", f"{medians[VIRTUAL] * 1000:.0f} ms", ratio, "<= 1.25", met=ratio <= 1.25
    )

    for name, goal in AGAINST_EMPTY.items():
        ratio = medians[name] / medians[EMPTY]
        row(f"{name}, against a Typer command", "", ratio, f"<= {goal}", met=ratio <= goal)


def samples_per_second() -> None:
    """Compare the loops alone: the time of 10^6 samples less that of 100."""
    sizes = (100, 1000) if QUICK else (100, 1_000_000)
    commands = {f"tutorial {n}": [*TUTORIAL, str(n)] for n in sizes}
    commands |= {f"run {n}": [*DPDEMO, "run", "--data-size", str(n)] for n in sizes}
    medians = take_turns(commands, rounds(3))
    tutorial = medians[f"tutorial {sizes[1]}"] - medians["tutorial 100"]
    ours = medians[f"run {sizes[1]}"] - medians["run 100"]
    ratio = tutorial / ours
    row("run, 10^6 samples: samples per second", f"{1e6 / ours:.0f}/s", ratio, ">= 3", met=ratio >= 3)


def memory() -> None:
    """Compare the peak memory of a long epoch with that of a short one."""
    short, long = (
        peak_bytes([*DPDEMO, "run", "-q", "--batch-size", "1000", "--data-size", str(n)])
        for n in (10**4, 10**5 if QUICK else 10**8)
    )
    row(
        "run, 10^8 samples: peak memory",
        f"{long >> 20} MiB",
        long / short,
        "<= 1.05",
        met=long / short <= 1.05,
    )


if __name__ == "__main__":
    print(f"{'command':<44} {'median':>14} {'ratio':>8}   {'goal':<10}")
    whole_processes()
    samples_per_second()
    memory()
