"""Measure what virtual GPUs cost: ratios of medians, taken in turns in one process (run this file).

Times are the processor's, of one thread: a busy machine changes them little.
Each line says what is compared and the bound that it is to keep; the exit code is 1 if one does not.
"""

from __future__ import annotations

import copy
import statistics
import sys
from typing import TYPE_CHECKING

import torch
from quick import QUICK, rounds
from ratios import NUM_GPUS, encoder, report, seconds, step
from torch import nn

from dpdemo.examples.gpt import Decoder
from dpdemo.virtual import virtual_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = rounds(5)
CALLS = 5000


def chunks_by_hand(model: nn.Module, batch: torch.Tensor) -> None:
    """Do on the CPU what DataParallel does: a copy of the model for each chunk, and gradients added up."""
    copies = [copy.deepcopy(model) for _ in range(NUM_GPUS)]
    outputs = [item(chunk) for item, chunk in zip(copies, batch.chunk(NUM_GPUS), strict=True)]
    torch.cat(outputs).square().mean().backward()
    for parameters in zip(*(item.parameters() for item in copies), strict=True):
        sum(parameter.grad for parameter in parameters)


def one_round(model: nn.Module, batch: torch.Tensor) -> list[float]:
    """Time the four ways to do one training step: CPU, one GPU, chunks by hand, DataParallel."""
    cpu = seconds(lambda: step(model, batch))
    hand = seconds(lambda: chunks_by_hand(model, batch))
    with virtual_gpus(NUM_GPUS):
        moved, moved_batch = copy.deepcopy(model).cuda(), batch.cuda()
        parallel = nn.DataParallel(moved)
        gpu = seconds(lambda: step(moved, moved_batch))
        dp = seconds(lambda: step(parallel, moved_batch))
    return [cpu, gpu, hand, dp]


def microseconds_an_op() -> list[float]:
    """Time one small addition on the CPU and on a virtual GPU."""

    def calls(item: torch.Tensor) -> None:
        for _ in range(CALLS):
            item + item

    item = torch.ones(4)
    plain = seconds(lambda: calls(item))
    with virtual_gpus(1):
        moved = item.cuda()
        virtual = seconds(lambda: calls(moved))
    return [plain / CALLS * 1e6, virtual / CALLS * 1e6]


def medians(measure: Callable[[], list[float]]) -> list[float]:
    """Return the medians of all rounds but the first, which warms up."""
    rounds = [measure() for _ in range(ROUNDS + 1)][1:]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def main() -> int:
    """Measure and report."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers, rows = (1, 8) if QUICK else (4, 32)
    model, batch = encoder(layers, 256), torch.randn(rows, 64, 256)
    dropping, gpt = encoder(layers, 256, 0.1), Decoder(width=256, layers=layers, words=512)
    tokens = torch.randint(512, (rows, 64))
    plain, virtual = medians(microseconds_an_op)
    cpu, gpu, hand, dp = medians(lambda: one_round(model, batch))
    dropping_cpu, dropping_gpu, _, _ = medians(lambda: one_round(dropping, batch))
    _, _, gpt_hand, gpt_dp = medians(lambda: one_round(gpt, tokens))
    print(f"torch {torch.__version__}, one thread, medians of {ROUNDS} rounds")
    print(f"one addition: {plain:.1f} µs on the CPU, {virtual:.1f} µs on a virtual GPU")
    print(
        f"one step: CPU {cpu:.3f} s, one virtual GPU {gpu:.3f} s, "
        f"chunks by hand {hand:.3f} s, DataParallel {dp:.3f} s"
    )
    held = [
        report("overhead of an operator, µs", virtual - plain, 5),
        report("transformer encoder, one virtual GPU ÷ plain CPU", gpu / cpu, 1.25),
        report("the same with dropout, one virtual GPU ÷ plain CPU", dropping_gpu / dropping_cpu, 1.25),
        report(
            f"transformer encoder, DataParallel over {NUM_GPUS} virtual GPUs ÷ chunks by hand",
            dp / hand,
            1.35,
        ),
        report(
            f"GPT, DataParallel over {NUM_GPUS} virtual GPUs ÷ chunks by hand",
            gpt_dp / gpt_hand,
            1.25,
        ),
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
