"""Time checks over 4 virtual GPUs: `dpdemo.check`, and `dpdemo exec --check`.

Of a model of 10^6 parameters, and of 30 small ones, `dpdemo.check` is held against the bare runs of its
plan, and a training loop that is checked against the same one unchecked. The bare runs are the batches and
modes of the plan, each forward and backward on one virtual GPU and under DataParallel, and nothing else. Of
the small models both are also held against one plain forward and backward, of which the bare runs cost
eighty, since DataParallel copies a model and starts a thread for each GPU however small it is. A check costs
less where it need not run all of its plan: in a mode that nobody asks for, or backward to say the same again.
One run, taking turns, medians of the processor's time.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from quick import QUICK, rounds
from ratios import NUM_GPUS, report, seconds
from torch import nn

from dpdemo.checking import check
from dpdemo.checking.running.batches import plan
from dpdemo.executing.callcheck import CallCheck
from dpdemo.virtual import virtual_gpus

Inputs = Callable[[int], torch.Tensor]

ROUNDS = rounds(9)
FEW_ROUNDS = rounds(3)
STEPS = 30
BATCH_SIZE = 32


def model() -> nn.Module:
    """Build a model of 1.06 million parameters."""
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 10))


def batch(size: int) -> torch.Tensor:
    """Make a batch of random rows."""
    return torch.randn(size, 256)


def bare_runs(factory: Callable[[], nn.Module], inputs: Inputs) -> None:
    """Run all that a check plans, without looking."""
    with virtual_gpus(NUM_GPUS):
        for planned in plan(BATCH_SIZE, NUM_GPUS, None, drop_last=False):
            single = factory().cuda().train(planned.mode == "train")
            single(inputs(planned.size).cuda()).sum().backward()
            parallel = nn.DataParallel(factory().cuda().train(planned.mode == "train"))
            parallel(inputs(planned.size).cuda()).sum().backward()


def checked(factory: Callable[[], nn.Module], inputs: Inputs) -> None:
    """Check a model."""
    check(factory, inputs, gpus=NUM_GPUS, batch_size=BATCH_SIZE)


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


class Reading(nn.Module):
    """An embedding, a recurrent layer that is flattened first, and a linear one."""

    def __init__(self, kind: Callable[..., nn.Module], width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        self.rnn: Any = kind(width, width, batch_first=True)
        self.fc = nn.Linear(width, 4)

    def forward(self, ids: torch.Tensor) -> Any:
        """Read ids of shape (rows, time); return scores of shape (rows, time, 4)."""
        self.rnn.flatten_parameters()
        return self.fc(self.rnn(self.embedding(ids))[0])


def perceptron(depth: int, width: int) -> nn.Module:
    """Build `depth` linear layers with an activation between each two."""
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, 4))


def convolutions(norm: Callable[[int], nn.Module], depth: int) -> nn.Module:
    """Build `depth` convolutions, each normalised."""
    layers = [part for _ in range(depth) for part in (nn.Conv2d(8, 8, 3, padding=1), norm(8), nn.ReLU())]
    return nn.Sequential(nn.Conv2d(3, 8, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def attention(depth: int) -> nn.Module:
    """Build an encoder of `depth` layers."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


NORMS = (nn.BatchNorm2d, lambda size: nn.GroupNorm(2, size), nn.Identity)
SMALL = [
    *((partial(perceptron, depth, width), (width,)) for depth in (1, 2, 4) for width in (8, 32, 64)),
    *((partial(convolutions, norm, depth), (3, 10, 10)) for norm in NORMS for depth in (1, 2, 4)),
    *((partial(Reading, kind, width), None) for kind in (nn.LSTM, nn.GRU, nn.RNN) for width in (8, 32)),
    *((partial(attention, depth), (6, 16)) for depth in (1, 2, 3)),
    *((partial(nn.Sequential, nn.Flatten(), nn.Linear(size, 4)), (size,)) for size in (4, 16, 128)),
]
"""30 small models, and the shape of one sample; None is a sentence of ids."""


def drawn(shape: tuple[int, ...] | None, size: int) -> torch.Tensor:
    """Draw a batch."""
    return torch.randint(0, 50, (size, 6)) if shape is None else torch.randn(size, *shape)


def check_small_models(at_most: float, at_most_of_bare: float) -> None:
    """Print what a check of a small model takes, and the bare runs of its plan: medians of 30 models."""
    rows = []
    models = SMALL[:1] if QUICK else SMALL
    for factory, shape in models:
        inputs = partial(drawn, shape)
        plain = factory()
        step = lambda: plain(inputs(BATCH_SIZE)).sum().backward()  # noqa: B023, E731 - called in this round
        works = (step, partial(bare_runs, factory, inputs), partial(checked, factory, inputs))
        for work in works:
            work()
        times = (ROUNDS, 1, 1)
        taken = [
            [seconds(work, number) / number for work, number in zip(works, times, strict=True)]
            for _ in range(FEW_ROUNDS)
        ]
        on_one_gpu, bare, whole = (statistics.median(column) for column in zip(*taken, strict=True))
        rows.append((bare / on_one_gpu, whole / on_one_gpu, whole / bare, whole))
    bare_ratio, ratio, of_bare, took = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"{len(models)} small models: a check takes {took * 1000:.0f} ms of the processor")
    print(f"the runs of its plan ÷ one plain forward and backward   {bare_ratio:>8.0f}")
    report("check ÷ one plain forward and backward", ratio, at_most)
    report("check of a small model ÷ the runs of its plan", of_bare, at_most_of_bare)


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
    assert check(model, batch, gpus=NUM_GPUS, batch_size=BATCH_SIZE).ok
    bare, whole = partial(bare_runs, model, batch), partial(checked, model, batch)
    compare("check ÷ the runs of its plan", bare, whole, 3)
    check_small_models(80, 1.0)
    compare("training with exec --check ÷ without", trained, watched, 1.5)
