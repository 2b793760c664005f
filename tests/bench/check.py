"""Time checks of a model of 10^6 parameters over 4 virtual GPUs: `dpdemo.check`, and `dpdemo exec --check`.

`dpdemo.check` is held against the bare runs that it needs, a training loop that is checked against the same
one unchecked.
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
from dpdemo.preflight.watching import CallCheck
from dpdemo.virtual import virtual_gpus

ROUNDS = 9
STEPS = 30
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


def training() -> None:
    """Train the model for some steps, now and then with a short batch, and evaluate it."""
    parallel = nn.DataParallel(model().cuda())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    for step in range(STEPS):
        size = BATCH_SIZE if step % 10 else BATCH_SIZE // 2 + 1
        loss = nn.functional.cross_entropy(parallel(batch(size).cuda()), torch.arange(size).cuda() % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        parallel.eval()(batch(BATCH_SIZE).cuda())


def trained() -> None:
    """Train as `dpdemo exec` lets a program."""
    with virtual_gpus(NUM_GPUS):
        training()


def watched() -> None:
    """Train as `dpdemo exec --check` lets a program, and judge."""
    check = CallCheck()
    with virtual_gpus(NUM_GPUS):
        with check.watching():
            training()
        assert check.report().ok


def seconds(work: Callable[[], None]) -> float:
    """Give the processor's time for one piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(name: str, baseline: Callable[[], None], work: Callable[[], None], goal: float) -> None:
    """Print how much longer one piece of work takes than another."""
    baseline()
    work()
    times = [(seconds(baseline), seconds(work)) for _ in range(ROUNDS)]
    bare, whole = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"without {bare * 1000:.0f} ms, with {whole * 1000:.0f} ms")
    verdict = "met" if whole <= goal * bare else "MISSED"
    print(f"{name} {whole / bare:>8.2f}   (at most {goal}) {verdict}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    compare("check ÷ the runs that it needs", bare_runs, checked, 3)
    compare("training with exec --check ÷ without", trained, watched, 1.5)
