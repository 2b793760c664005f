"""Measure `dpdemo memory` on GPT-2 and on a decoder of 10^9 parameters, AdamW, beside `import torch`.

Each line is a process of its own: the seconds of the processor from its start to its end, as a ratio to
`import torch` before and after it, which a busy machine changes little.
"""

import os
import subprocess
import sys
from pathlib import Path

from quick import QUICK, line

GPT2 = ["dpdemo.examples.gpt:gpt2"]
DECODER = ["dpdemo.examples.gpt:Decoder", "--loss", "cross-entropy"]
ROWS = (8, 16) if QUICK else (32, 64)


def used_by(command: list[str]) -> tuple[float, float]:
    """Run a program; return the processor's seconds, and its largest resident memory in GiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**30


def import_torch() -> float:
    """Return the processor's seconds of a bare import, as fast as it can be."""
    return used_by([sys.executable, "-c", "import gc; gc.disable(); import torch"])[0]


def report(what: str, bound: float, *options: str) -> tuple[float, float]:
    """Print what a prediction costs beside its bound; return that ratio and its resident memory."""
    before = import_torch()
    seconds, resident = used_by([str(Path(sys.executable).parent / "dpdemo"), "memory", "--quiet", *options])
    ratio = 2 * seconds / (before + import_torch())
    line(f"{what} ÷ import torch", ratio, bound)
    return ratio, resident


def main() -> None:
    """Print all figures."""
    few, many = ROWS
    small, large = (
        [*GPT2, "--input", f"{few}x512:int64", "-g", "4"],
        [*DECODER, "--input", f"{many}x512:int64"],
    )
    report("GPT-2 over 4 GPUs", 1.4, *small)
    ratio, resident = report("a decoder of 10⁹ over 8 GPUs", 1.6, *large, "-g", "8")
    report("GPT-2 on a rank of DDP", 1.6, *small, "--strategy", "ddp")
    report("GPT-2 on a rank of FSDP2", 4.2, *small, "--strategy", "fsdp2")
    report("GPT-2 with --fit", 2.6, *small, "--gpu-memory", "24GiB", "--fit")
    if not QUICK:
        report("the decoder with --fit", 3.9, *large, "-g", "8", "--gpu-memory", "80GiB", "--fit")
    line("memory resident, the decoder, GiB", resident, 0.4)
    longer = [*DECODER, "--input", f"{64 * many}x512:int64", "-g", "8"]
    line("64 times the batch ÷ the batch", report("64 times its batch", 1.8, *longer)[0] / ratio, 1.35)


if __name__ == "__main__":
    main()
