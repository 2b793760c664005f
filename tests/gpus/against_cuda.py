"""Hold the ledger of virtual GPUs against a real GPU: predicted ÷ measured peak of a training step.

    python tests/gpus/against_cuda.py           # on a machine with a GPU: the whole table
    python tests/gpus/against_cuda.py predict   # anywhere: the predictions alone

The predictions are made in a process of their own, from which the GPU is hidden. The peak measured is
`torch.cuda.max_memory_allocated` of the second step; the workspaces of cuBLAS, which are in it, are added to
the prediction as `dpdemo/memory/hardware.py` has them for this card.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

import torch
from cuda_programs import OPTIMIZERS, PROGRAMS, peak_of

from dpdemo.memory.hardware import HANDLE_BYTES, SMALL_HANDLE_BYTES
from dpdemo.virtual import virtual_gpus

GOAL = 0.05
LARGE_BYTES = 256 * 2**20
CASES = [(name, optimizer, amp) for name in PROGRAMS for optimizer in OPTIMIZERS for amp in (False, True)]


def predictions() -> list[int]:
    """Return the peak of each case on a virtual GPU without numbers."""
    found = []
    for name, optimizer, amp in CASES:
        with virtual_gpus(1, storage="meta"):
            found.append(peak_of(PROGRAMS[name], optimizer, amp=amp))
    return found


def predictions_elsewhere() -> list[int]:
    """Return the predictions of a process that sees no GPU."""
    done = subprocess.run(
        [sys.executable, __file__, "predict-json"], env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return list(json.loads(done.stdout))


def measure(name: str, optimizer: str, *, amp: bool) -> int:
    """Return the peak of a case on the real GPU."""
    gc.collect()
    torch.cuda.empty_cache()
    return peak_of(PROGRAMS[name], optimizer, amp=amp)


def case(name: str, optimizer: str, *, amp: bool) -> str:
    """Name a case in columns."""
    return f"{name:<10}{optimizer:<11}{'autocast' if amp else 'float32':<9}"


def main() -> int:
    """Print the table; the exit code is 1 if the goal is missed anywhere."""
    if not torch.cuda.is_available():
        print("expected a CUDA GPU, got none; `predict` prints the predictions alone", file=sys.stderr)
        return 2
    card = torch.cuda.get_device_properties(0)
    workspace = 2 * (HANDLE_BYTES if card.major >= 9 else SMALL_HANDLE_BYTES)
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    print(f"{card.name}, {versions}, cuBLAS {workspace / 2**20:.1f} MiB")
    print(f"{'program':<10}{'optimizer':<11}{'dtype':<9}{'predicted':>10}{'measured':>10} MiB{'ratio':>8}")
    missed = 0
    for (name, optimizer, amp), predicted in zip(CASES, predictions_elsewhere(), strict=True):
        measured, whole = measure(name, optimizer, amp=amp), predicted + workspace
        is_missed = measured > LARGE_BYTES and abs(whole / measured - 1) > GOAL
        missed += is_missed
        sizes = f"{whole / 2**20:>10.1f}{measured / 2**20:>10.1f}{whole / measured:>12.3f}"
        print(f"{case(name, optimizer, amp=amp)}{sizes}{' MISSED' if is_missed else ''}")
    print(f"goal: within {GOAL:.0%} above 256 MiB; {len(CASES) - missed} of {len(CASES)} met")
    return 1 if missed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["predict-json"]:
        print(json.dumps(predictions()))
    elif sys.argv[1:] == ["predict"]:
        for (name, optimizer, amp), peak in zip(CASES, predictions(), strict=True):
            print(f"{case(name, optimizer, amp=amp)}{peak / 2**20:>10.1f} MiB")
    else:
        sys.exit(main())
