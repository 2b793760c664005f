"""Measure `dpdemo memory` on a decoder of 10^9 parameters, batch 64 x 512, AdamW, on up to 8 GPUs.

Each line is a process of its own: the seconds of the processor from its start to its end, which a busy
machine does not lengthen (the elapsed ones stand above), and the most memory that it had resident.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from quick import QUICK, line

DECODER = ["memory", "--model", "dpdemo.examples.gpt:Decoder", "--loss", "cross-entropy", "--quiet"]


def run(*options: str) -> tuple[float, float]:
    """Run the command in a process; return the processor's seconds and its largest resident memory in GiB."""
    began = time.perf_counter()
    command = [str(Path(sys.executable).parent / "dpdemo"), *DECODER, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    print(f"{time.perf_counter() - began:>5.1f} s elapsed: {' '.join(options)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**30


def main() -> None:
    """Print all figures."""
    rows = 4 if QUICK else 64
    seconds, resident = run("--input", f"{rows}x512:int64", "--gpus", "8")
    few, _ = run("--input", f"{rows // 4}x512:int64", "--gpus", "2")
    large, _ = run("--input", f"{64 * rows}x512:int64", "--gpus", "8")
    fit, fit_resident = run("--input", f"{rows}x512:int64", "--gpus", "8", "--gpu-memory", "80GiB", "--fit")
    line("one step on 8 GPUs, seconds", seconds, 4)
    line("memory resident, GiB", resident, 0.35)
    line("--fit, seconds", fit, 60)
    line("memory resident of --fit, GiB", fit_resident, 1)
    line("8 GPUs ÷ 2 GPUs (linear would be 4)", seconds / few, 4)
    line("64 times the batch ÷ the batch", large / seconds, 1.25)


if __name__ == "__main__":
    main()
