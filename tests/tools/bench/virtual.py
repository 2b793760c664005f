"""Measure what virtual GPUs cost: the processor's time of one thread, medians of ratios in one process."""

import copy
import functools
import statistics
from collections.abc import Callable

import torch
from quick import QUICK, line, rounds, seconds
from ratios import NUM_GPUS, encoder, step
from torch import nn

from dpdemo.examples.gpt import Decoder
from dpdemo.virtual import virtual_gpus

Work = Callable[[], object]
ROUNDS = 9
CALLS = 5000


def chunks_by_hand(model: nn.Module, batch: torch.Tensor) -> None:
    """Do on the CPU what DataParallel does: a copy of the model for each chunk, and gradients added up."""
    copies = [copy.deepcopy(model) for _ in range(NUM_GPUS)]
    outputs = [item(chunk) for item, chunk in zip(copies, batch.chunk(NUM_GPUS), strict=True)]
    torch.cat(outputs).square().mean().backward()
    for parameters in zip(*(item.parameters() for item in copies), strict=True):
        sum(parameter.grad for parameter in parameters)


def pairs(plain: Work, make: Callable[[], Work], num_gpus: int) -> list[tuple[float, float]]:
    """Measure plain work and, right after it, work that is made and warmed up on virtual GPUs; in turns."""
    plain()
    found = []
    for _ in range(rounds(ROUNDS)):
        base = seconds(plain)
        with virtual_gpus(num_gpus):
            work = make()
            work()
            found.append((base, seconds(work)))
    return found


def against(what: str, found: list[tuple[float, float]], bound: float) -> None:
    """Print the median of the ratios."""
    ratio = statistics.median(took / base for base, took in found)
    line(what, ratio, bound, f"{found[-1][1]:.3f} s")


def against_cpu(name: str, model: nn.Module, batch: torch.Tensor) -> None:
    """Compare a step on one virtual GPU with one on the CPU."""

    def make() -> Work:
        return functools.partial(step, copy.deepcopy(model).cuda(), batch.cuda())

    found = pairs(lambda: step(model, batch), make, 1)
    against(f"{name}, one virtual GPU ÷ plain CPU", found, 1.25)


def against_hand(name: str, model: nn.Module, batch: torch.Tensor, bound: float) -> None:
    """Compare a step under DataParallel with the chunks by hand."""

    def make() -> Work:
        return functools.partial(step, nn.DataParallel(copy.deepcopy(model).cuda()), batch.cuda())

    found = pairs(lambda: chunks_by_hand(model, batch), make, NUM_GPUS)
    against(f"{name}, DataParallel over {NUM_GPUS} ÷ chunks by hand", found, bound)


def additions(item: torch.Tensor) -> None:
    """Add many times."""
    for _ in range(CALLS):
        item + item


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers, rows = (1, 8) if QUICK else (4, 32)
    model, batch = encoder(layers, 256), torch.randn(rows, 64, 256)
    item = torch.ones(4)
    found = pairs(lambda: additions(item), lambda: functools.partial(additions, item.cuda()), 1)
    overhead = statistics.median(took - base for base, took in found)
    line("overhead of an operator, µs", overhead / CALLS * 1e6, 5)
    against_cpu("transformer encoder", model, batch)
    against_cpu("the same with dropout", encoder(layers, 256, 0.1), batch)
    against_hand("transformer encoder", model, batch, 1.35)
    against_hand("GPT", Decoder(width=256, layers=layers, words=512), torch.randint(512, (rows, 64)), 1.25)
