"""The stream of seeded samples."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from dpdemo.models.noise import BatchLoader, NoiseDataset, epoch_order


def dataset(seed=0, sample=(5,), dtype=torch.float32, vocabulary=0):
    return NoiseDataset(sample, seed, dtype, vocabulary)


def test_a_sample_is_the_same_in_whatever_order_it_is_drawn():
    forward = dataset().rows(torch.arange(50))
    backward = dataset().rows(torch.arange(49, -1, -1))
    assert torch.equal(forward, backward.flip(0))
    assert torch.equal(dataset().rows(torch.tensor([17]))[0], forward[17])


def test_ids_fill_the_vocabulary_and_stay_below_it():
    ids = dataset(vocabulary=10).rows(torch.arange(1000))
    assert ids.dtype == torch.int64
    assert ids.unique().tolist() == list(range(10))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_samples_have_the_type_that_was_asked_for(dtype):
    assert dataset(dtype=dtype).rows(torch.arange(2)).dtype is dtype


@given(
    data_size=st.integers(1, 300),
    batch_size=st.integers(1, 40),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    dim=st.integers(0, 1),
)
def test_an_epoch_is_what_torchs_own_dataloader_makes_of_the_same_samples(
    data_size, batch_size, drop_last, shuffle, dim
):
    order = epoch_order(data_size, 0, shuffle=shuffle)
    loader = BatchLoader(dataset(), data_size, batch_size, dim, drop_last, order)
    samples = dataset().rows(torch.arange(data_size) if order is None else order)
    genuine = torch.utils.data.DataLoader(samples, batch_size, drop_last=drop_last)
    batches = list(loader)
    assert len(loader) == len(genuine) == len(batches)
    for got, want in zip(batches, genuine, strict=True):
        assert torch.equal(got, want.movedim(0, dim))


def test_an_epoch_of_many_blocks_loses_no_sample_at_their_borders():
    loader = BatchLoader(dataset(sample=(700,)), data_size=1000, batch_size=7)
    assert torch.equal(torch.cat(list(loader)), dataset(sample=(700,)).rows(torch.arange(1000)))


def test_a_shuffled_epoch_visits_every_sample_once_in_another_order():
    order = epoch_order(1000, 3, shuffle=True)
    assert order.tolist() != list(range(1000))
    assert sorted(order.tolist()) == list(range(1000))


def test_an_epoch_of_a_billion_samples_starts_without_making_them():
    first = next(iter(BatchLoader(dataset(), data_size=10**15, batch_size=30)))
    assert first.shape == (30, 5)
