"""What Python needs for a module or tensor of a replica, and for an operator: see dpdemo/timing/costs.py."""

import sys
import time

import torch
from quick import rounds
from torch import nn

REPLICATE = sys.modules["torch.nn.parallel.replicate"]
REPEATS, CALLS = rounds(7), 20_000


def shared(tensors, devices, detach=False):
    """Stand in for the broadcast: replicas get the tensors themselves, so that only Python's part counts."""
    del detach
    return [list(tensors) for _ in devices]


def replicate_us(model, replicas):
    """The best of some calls of `replicate`, for each module and tensor of each replica."""
    handled = len(list(model.modules())) + len([*model.parameters(), *model.buffers()])
    best = min(_timed(lambda: REPLICATE.replicate(model, list(range(replicas)))) for _ in range(REPEATS))
    return best / replicas / handled * 1e6


def operator_us(call):
    """The mean of many calls of an operator on next to no numbers."""
    return min(_timed(lambda: [call() for _ in range(CALLS)]) for _ in range(3)) / CALLS * 1e6


def _timed(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main():
    """Print the table."""
    torch.set_num_threads(1)
    REPLICATE._broadcast_coalesced_reshape = shared
    REPLICATE._get_device_index = lambda device, *_: device
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128), 24, enable_nested_tensor=False)
    for replicas in (2, 4, 8):
        print(f"replicate, {replicas} replicas: {replicate_us(encoder, replicas):5.1f} µs a module or tensor")
    x, layer = torch.ones(8, 8, requires_grad=True), nn.Linear(8, 8)
    for name, call in (("relu", x.relu), ("add", lambda: x + x), ("a linear layer", lambda: layer(x))):
        print(f"{name}: {operator_us(call):5.1f} µs")


if __name__ == "__main__":
    main()
