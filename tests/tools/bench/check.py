"""Time checks over 4 virtual GPUs: `dpdemo.check`, and `dpdemo exec --check`.

`dpdemo.check` is held against the bare runs of its plan: the batches and modes, each forward and backward on
one virtual GPU and under DataParallel, and nothing else. A training loop that is checked is held against the
same one unchecked. Of small models both are also held against one plain forward and backward, of which the
bare runs cost sixty, since DataParallel copies a model and starts a thread for each GPU however small it is.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from quick import QUICK, line, medians
from ratios import NUM_GPUS, encoder
from torch import nn

from dpdemo.checking import check
from dpdemo.checking.running.batches import plan
from dpdemo.programs.callcheck import CallCheck
from dpdemo.virtual import virtual_gpus

STEPS = 30
BATCH_SIZE = 32


def model() -> nn.Module:
    """Build a model of 1.06 million parameters."""
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 10))


def bare_runs(factory: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """Run all that a check plans, without looking."""
    with virtual_gpus(NUM_GPUS):
        for planned in plan(BATCH_SIZE, NUM_GPUS, None, drop_last=False):
            single = factory().cuda().train(planned.mode == "train")
            single(torch.randn(planned.size, *shape).cuda()).sum().backward()
            parallel = nn.DataParallel(factory().cuda().train(planned.mode == "train"))
            parallel(torch.randn(planned.size, *shape).cuda()).sum().backward()


def checked(factory: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """Check a model."""
    check(factory, lambda size: torch.randn(size, *shape), gpus=NUM_GPUS, batch_size=BATCH_SIZE)


def training() -> None:
    """Train the model for some steps, now and then with a short batch, and evaluate it."""
    parallel = nn.DataParallel(model().cuda())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    for step in range(STEPS):
        size = BATCH_SIZE if step % 10 else BATCH_SIZE // 2 + 1
        logits = parallel(torch.randn(size, 256).cuda())
        loss = nn.functional.cross_entropy(logits, torch.arange(size).cuda() % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        parallel.eval()(torch.randn(BATCH_SIZE, 256).cuda())


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
    """A recurrent layer that is flattened first, and a linear one."""

    def __init__(self, kind: Callable[..., nn.Module], width: int) -> None:
        super().__init__()
        self.rnn: Any = kind(width, width, batch_first=True)
        self.fc = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> Any:
        """Read numbers of shape (rows, time, width); return scores of shape (rows, time, 4)."""
        self.rnn.flatten_parameters()
        return self.fc(self.rnn(x)[0])


def perceptron(depth: int, width: int) -> nn.Module:
    """Build `depth` linear layers with an activation between each two."""
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, 4))


def convolutions(depth: int) -> nn.Module:
    """Build `depth` convolutions, each normalised."""
    layers = [part for _ in range(depth) for part in (nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))


SMALL: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    *((partial(perceptron, depth, width), (width,)) for depth in (1, 2, 4, 8, 12) for width in (8, 64)),
    *((partial(convolutions, depth), (3, 18, 18)) for depth in (1, 2, 3, 4, 6, 8)),
    *((partial(Reading, kind, width), (6, width)) for kind in (nn.LSTM, nn.GRU, nn.RNN) for width in (8, 16)),
    *((partial(encoder, depth, width), (6, width)) for depth in (1, 2, 3, 4) for width in (16, 32)),
]
"""Small models, and the shape of one sample."""


def check_small_models() -> None:
    """Print what a check of a small model takes beside its parts: medians of the models."""
    rows = []
    for factory, shape in SMALL[: 1 if QUICK else None]:
        plain = factory()
        step = lambda: plain(torch.randn(BATCH_SIZE, *shape)).sum().backward()  # noqa: B023, E731 - called here
        works = (partial(work, factory, shape) for work in (bare_runs, checked))
        on_one_gpu, bare, whole = medians(3, step, *works)
        rows.append((bare / on_one_gpu, whole / on_one_gpu, whole / bare))
    of_runs, of_step, of_bare = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"{len(rows)} small models: the runs of a check take {of_runs:.0f} plain steps")
    line("check of a small model ÷ one plain forward and backward", of_step, 70)
    line("check of a small model ÷ the runs of its plan", of_bare, 1.0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    bare, whole = medians(9, partial(bare_runs, model, (256,)), partial(checked, model, (256,)))
    line("check ÷ the runs of its plan", whole / bare, 3, f"{whole:.2f} s")
    check_small_models()
    plain, whole = medians(9, trained, watched)
    line("training with exec --check ÷ without", whole / plain, 1.5, f"{whole:.2f} s")
