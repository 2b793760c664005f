"""Measure what virtual GPUs cost: the processor's time of one thread, medians in one process."""

import copy

import torch
from quick import QUICK, line, medians
from ratios import NUM_GPUS, encoder, step
from torch import nn

from dpdemo.examples.gpt import Decoder
from dpdemo.virtual import virtual_gpus

ROUNDS = 5
CALLS = 5000


def chunks_by_hand(model: nn.Module, batch: torch.Tensor) -> None:
    """Do on the CPU what DataParallel does: a copy of the model for each chunk, and gradients added up."""
    copies = [copy.deepcopy(model) for _ in range(NUM_GPUS)]
    outputs = [item(chunk) for item, chunk in zip(copies, batch.chunk(NUM_GPUS), strict=True)]
    torch.cat(outputs).square().mean().backward()
    for parameters in zip(*(item.parameters() for item in copies), strict=True):
        sum(parameter.grad for parameter in parameters)


def against_cpu(name: str, model: nn.Module, batch: torch.Tensor) -> None:
    """Compare a step on one virtual GPU with one on the CPU."""
    (cpu,) = medians(ROUNDS, lambda: step(model, batch))
    with virtual_gpus(1):
        moved, inputs = copy.deepcopy(model).cuda(), batch.cuda()
        (gpu,) = medians(ROUNDS, lambda: step(moved, inputs))
    line(f"{name}, one virtual GPU ÷ plain CPU", gpu / cpu, 1.25, f"{gpu:.3f} s")


def against_hand(name: str, model: nn.Module, batch: torch.Tensor, bound: float) -> None:
    """Compare a step under DataParallel with the chunks by hand."""
    (hand,) = medians(ROUNDS, lambda: chunks_by_hand(model, batch))
    with virtual_gpus(NUM_GPUS):
        parallel, inputs = nn.DataParallel(copy.deepcopy(model).cuda()), batch.cuda()
        (ours,) = medians(ROUNDS, lambda: step(parallel, inputs))
    line(f"{name}, DataParallel over {NUM_GPUS} ÷ chunks by hand", ours / hand, bound, f"{ours:.3f} s")


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
    (plain,) = medians(ROUNDS, lambda: additions(item))
    with virtual_gpus(1):
        moved = item.cuda()
        (virtual,) = medians(ROUNDS, lambda: additions(moved))
    line("overhead of an operator, µs", (virtual - plain) / CALLS * 1e6, 5)
    against_cpu("transformer encoder", model, batch)
    against_cpu("the same with dropout", encoder(layers, 256, 0.1), batch)
    against_hand("transformer encoder", model, batch, 1.35)
    against_hand("GPT", Decoder(width=256, layers=layers, words=512), torch.randint(512, (rows, 64)), 1.25)
