"""The correct result of DataParallel, computed on the CPU: a module called on one chunk after the other."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from dpdemo.virtual import virtual_gpus

NUM_GPUS = 3


def chunks(value, num_chunks):
    """Cut every tensor in `value` along its first dimension; all else goes to each chunk as it is.

    Each chunk lies in memory of its own, as on its GPU: a kernel may look at where its operands begin.
    """
    if isinstance(value, torch.Tensor):
        return [chunk.clone() for chunk in value.chunk(num_chunks)]
    if isinstance(value, Mapping):
        parts = chunks(list(value.values()), num_chunks)
        return [dict(zip(value, part, strict=True)) for part in parts]
    if isinstance(value, (list, tuple)) and value:
        columns = zip(*(chunks(item, num_chunks) for item in value), strict=False)
        return [type(value)(column) for column in columns]
    return [value] * num_chunks


def joined(results):
    """Put the results of all chunks together as `gather` does: rows one after the other, numbers as a row."""
    first = results[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([result if result.dim() else result[None] for result in results])
    if isinstance(first, Mapping):
        return type(first)(**{name: joined([result[name] for result in results]) for name in first})
    if isinstance(first, (list, tuple)):
        return type(first)(joined(list(column)) for column in zip(*results, strict=True))
    return first


class ByHand(nn.Module):
    """Calls a module on each chunk: gradients add up, and of the buffers those of the first chunk stay."""

    def __init__(self, module, num_chunks=NUM_GPUS):
        super().__init__()
        self.module = module
        self.num_chunks = num_chunks

    def forward(self, *args, **kwargs):
        results = []
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        for some, named in self._calls(args, kwargs):
            if results:
                copies = {name: buffer.clone() for name, buffer in before.items()}
                results.append(functional_call(self.module, copies, some, named))
            else:
                results.append(self.module(*some, **named))
        return joined(results)

    def _calls(self, args, kwargs):
        positional = chunks(args, self.num_chunks) if args else []
        named = chunks(kwargs, self.num_chunks) if kwargs else []
        length = len(positional or named)
        return list(zip(positional or [()] * length, named or [{}] * length, strict=True))


Wrapper = Callable[[nn.Module], nn.Module]
Program = Callable[[Wrapper, str], Any]


def assert_agrees(program, *, num_gpus=NUM_GPUS):
    """Run a program with genuine DataParallel on virtual GPUs, and by hand on the CPU: the same comes out."""
    torch.manual_seed(0)
    expected = program(lambda module: ByHand(module, num_gpus), "cpu")
    torch.manual_seed(0)
    with virtual_gpus(num_gpus):
        found = program(nn.DataParallel, "cuda")
    torch.testing.assert_close(found, expected)


def state_of(module):
    """The parameters and buffers of a model that was trained, on the CPU, without the wrappers around it."""
    inner = module.module if isinstance(module, (nn.DataParallel, ByHand)) else module
    return {name: value.detach().cpu().clone() for name, value in inner.state_dict().items()}
