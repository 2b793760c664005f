"""The tokens of a program's calls: counted where its arguments tell them, and nowhere else."""

import pytest
import torch
from torch import nn

from dpdemo.calls.calls import watching
from dpdemo.virtual import virtual_gpus

LENGTHS = (3, 9, 1, 2, 7, 8, 4)
IDS = torch.arange(1, 78).view(7, 11)
MASK = (torch.arange(11) < torch.tensor(LENGTHS)[:, None]).long()


class Net(nn.Module):
    """A model with two embeddings, so that only a mask tells its tokens."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(80, 4, padding_idx=0)
        self.places = nn.Embedding(11, 4)

    def forward(self, input_ids, attention_mask=None, labels=None):  # noqa: ARG002
        return self.words(input_ids) + self.places.weight[: input_ids.shape[1]]


class Padded(nn.Module):
    """A model whose only embedding has a padding_idx."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(80, 4, padding_idx=0)

    def forward(self, ids, scale=None):  # noqa: ARG002
        return self.words(ids)


class OfDict(nn.Module):
    """A model that takes a tokenizer's batch."""

    def forward(self, batch):
        return batch["input_ids"].float()


def tokens_of(model, *args, gpus=3, **kwargs):
    """Return the watch's record of one call on virtual GPUs."""
    with virtual_gpus(gpus) as block:
        on_gpu = [[value] if isinstance(value, torch.Tensor) else value for value in args]
        on_gpu = [
            {name: tensor.cuda() for name, tensor in value.items()}
            if isinstance(value, dict)
            else value[0].cuda()
            for value in on_gpu
        ]
        named = {name: value.cuda() for name, value in kwargs.items()}
        parallel = nn.DataParallel(model.cuda())
        before = block.bytes_moved
        with watching() as watch:
            parallel(*on_gpu, **named)
        after = block.bytes_moved
        assert after.num_device_to_host == before.num_device_to_host
        (use,) = watch.uses()
        return use.tokens


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((IDS,), {"attention_mask": MASK}),
        ((IDS, MASK), {}),
        ((), {"input_ids": IDS, "attention_mask": MASK.bool(), "labels": IDS}),
        ((IDS,), {"attention_mask": MASK.float()}),
    ],
)
def test_a_mask_of_the_ids_shape_tells_them(args, kwargs):
    found = tokens_of(Net(), *args, **kwargs)
    assert found.told_by == "attention_mask"
    totals = found.summary.devices.values()
    assert [total.rows for total in totals] == [3, 3, 1]
    assert [total.tokens for total in totals] == [3 + 9 + 1, 2 + 7 + 8, 4]
    assert [total.padded for total in totals] == [33, 33, 11]


def test_a_mask_in_a_dict_tells_them():
    found = tokens_of(OfDict(), {"input_ids": IDS, "attention_mask": MASK})
    assert [total.tokens for total in found.summary.devices.values()] == [13, 17, 4]


def test_the_padding_idx_of_the_only_embedding_tells_them():
    found = tokens_of(Padded(), IDS * MASK)
    assert found.told_by == "padding_idx 0"
    assert [total.tokens for total in found.summary.devices.values()] == [13, 17, 4]


@pytest.mark.parametrize(
    ("model", "args", "kwargs"),
    [
        (Net(), (IDS,), {}),  # which embedding the ids go to is not seen
        (Net(), (IDS,), {"attention_mask": MASK * -10000}),  # a bias
        (Net(), (IDS,), {"attention_mask": MASK[:, :5]}),  # of another shape
        (Padded(), (IDS * MASK, IDS), {}),  # two tensors of ids
        (nn.Linear(11, 2), (IDS.float(),), {}),  # no ids
        (nn.Sequential(nn.Embedding(80, 4)), (IDS,), {}),  # no padding
    ],
)
def test_nothing_else_is_counted(model, args, kwargs):
    assert tokens_of(model, *args, **kwargs) is None


def test_counting_leaves_memory_as_it_is():
    peaks = []
    for mask in (MASK, MASK * 2):  # the second is none, and is not counted
        with virtual_gpus(3) as block:
            parallel = nn.DataParallel(Net().cuda())
            ids, mask_there = IDS.cuda(), mask.cuda()
            with watching() as watch:
                parallel(ids, mask_there)
            peaks.append([block.peak_bytes(index) for index in range(3)])
        assert (watch.uses()[0].tokens is None) == (mask is not MASK)
    assert peaks[0] == peaks[1]
