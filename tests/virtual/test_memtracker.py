"""The ledger agrees with PyTorch's own tracker of memory, which knows one device and nothing of ours.

`torch.distributed._tools.MemTracker` counts a CPU device's bytes as they are; the ledger rounds each storage
up to the caching allocator's 512. Sizes here are multiples of it, so only lone numbers differ: losses, and
the counts of steps, which an optimizer keeps on the host. The tracker is a dispatch mode, below which
autograd adds gradients into new memory (`dpdemo/virtual/ops/accumulating.py`), and here the ledger is too.
"""

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual import virtual_gpus


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _mlp():
    layers = (nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 128))
    return nn.Sequential(*layers), torch.zeros(64, 256)


def _cnn():
    layers = (
        *(nn.Conv2d(16, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(128, 128, 3), nn.Flatten(), nn.Linear(128 * 14 * 14, 128)),
    )
    return nn.Sequential(*layers), torch.zeros(8, 16, 32, 32)


def _encoder():
    return nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True), torch.zeros(4, 32, 256)


def _step(model, batch, optimizer):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def _optimizer(kind, model):
    return kind(model.parameters(), lr=0.1, foreach=False)


def tracked_peak(make, kind):
    """Return the peak of two steps on the CPU, as PyTorch tracks it."""
    model, batch = make()
    optimizer, tracker = _optimizer(kind, model), MemTracker()
    tracker.track_external(model, optimizer, batch)
    with tracker:
        for _ in range(2):
            _step(model, batch, optimizer)
            tracker.reset_mod_stats()
    (sizes,) = tracker.get_tracker_snapshot("peak").values()
    return int(sizes["Total"])


def ledger_peak(make, kind, storage):
    """Return the peak of the same steps on a virtual GPU."""
    with virtual_gpus(1, storage=storage) as gpus:
        model, batch = make()
        model, batch = model.cuda(), batch.cuda()
        optimizer = _optimizer(kind, model)
        with _Mode():
            for _ in range(2):
                _step(model, batch, optimizer)
        return gpus.peak_bytes(0)


@pytest.mark.parametrize("storage", ["cpu", "meta"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("make", [_mlp, _cnn, _encoder])
def test_the_peak_of_training_is_what_pytorch_tracks(make, kind, storage):
    lone_numbers = 8 * 512
    assert abs(ledger_peak(make, kind, storage) - tracked_peak(make, kind)) <= lone_numbers
