"""What Python needs for a module or tensor of a replica, and for an operator: see dpdemo/timing/steps.py."""

import sys

import torch
from quick import rounds, seconds
from torch import nn

REPLICATE = sys.modules["torch.nn.parallel.replicate"]
CALLS = 20_000


def shared(tensors, devices, detach=False):
    """Stand in for the broadcast: replicas get the tensors themselves, so that only Python's part counts."""
    del detach
    return [list(tensors) for _ in devices]


def best_us(call, times=1):
    """Return the best of some measurements of a call, in microseconds."""
    return min(seconds(call, times) for _ in range(rounds(7))) / times * 1e6


if __name__ == "__main__":
    torch.set_num_threads(1)
    REPLICATE._broadcast_coalesced_reshape = shared
    REPLICATE._get_device_index = lambda device, *_: device
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128), 24, enable_nested_tensor=False)
    handled = len([*encoder.modules(), *encoder.parameters(), *encoder.buffers()])
    for replicas in (2, 4, 8):
        taken = best_us(lambda: REPLICATE.replicate(encoder, list(range(replicas)))) / replicas / handled  # noqa: B023
        print(f"replicate, {replicas} replicas: {taken:5.1f} µs a module or tensor")
    x, layer = torch.ones(8, 8, requires_grad=True), nn.Linear(8, 8)
    for name, call in (("relu", x.relu), ("add", lambda: x + x), ("a linear layer", lambda: layer(x))):
        print(f"{name}: {best_us(call, CALLS):5.1f} µs")
