"""Time `dpdemo.check` on a model of 10^6 parameters over 4 virtual GPUs against the bare runs that it needs.

The bare runs are the batches and modes of the check, each forward and backward on one virtual GPU and under
DataParallel, and nothing else. One run, taking turns, medians of the processor's time.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from dpdemo.preflight import check
from dpdemo.preflight.batches import plan
from dpdemo.virtual import virtual_gpus

ROUNDS = 9
NUM_GPUS = 4
BATCH_SIZE = 32


def model() -> nn.Module:
    """Build a model of 1.06 million parameters."""
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 10))


def batch(size: int) -> torch.Tensor:
    """Make a batch of random rows."""
    return torch.randn(size, 256)


def bare_runs() -> None:
    """Run what a check needs, without looking."""
    with virtual_gpus(NUM_GPUS):
        for planned in plan(BATCH_SIZE, NUM_GPUS, None, drop_last=False):
            single = model().cuda().train(planned.mode == "train")
            single(batch(planned.size).cuda()).sum().backward()
            parallel = nn.DataParallel(model().cuda().train(planned.mode == "train"))
            parallel(batch(planned.size).cuda()).sum().backward()


def checked() -> None:
    """Check the model."""
    assert check(model, batch, gpus=NUM_GPUS, batch_size=BATCH_SIZE).ok


def seconds(work: Callable[[], None]) -> float:
    """Give the processor's time for one piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    torch.set_num_threads(1)
    bare_runs()
    checked()
    times = [(seconds(bare_runs), seconds(checked)) for _ in range(ROUNDS)]
    bare, whole = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"bare runs {bare * 1000:.0f} ms, check {whole * 1000:.0f} ms")
    verdict = "met" if whole <= 3 * bare else "MISSED"
    print(f"check ÷ the runs that it needs {whole / bare:>8.2f}   (at most 3) {verdict}")
