"""The rule of DistributedSampler, compared with torch's own."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.arithmetic.sampler import Epoch, Visit, distribute

EPOCHS = {
    "data_size": st.integers(1, 300),
    "num_ranks": st.integers(1, 40),
    "batch_size": st.integers(1, 50),
    "drop_last": st.booleans(),
    "sampler_drop_last": st.booleans(),
}


def torchs_batches(rank, *, data_size, num_ranks, batch_size, drop_last, sampler_drop_last, shuffle=False):
    """The batches that a DataLoader with torch's own DistributedSampler makes on one rank."""
    sampler = DistributedSampler(
        range(data_size), num_ranks, rank, shuffle=shuffle, drop_last=sampler_drop_last
    )
    return list(BatchSampler(sampler, batch_size, drop_last))


def torchs_epoch(*, shuffle=False, **epoch):
    return [torchs_batches(rank, **epoch, shuffle=shuffle) for rank in range(epoch["num_ranks"])]


@given(**EPOCHS)
@settings(max_examples=300, deadline=None)
def test_batches_of_ranks_are_as_long_as_with_torchs_sampler(**epoch):
    rule = distribute(**epoch)
    for batches in torchs_epoch(**epoch):
        assert [len(batch) for batch in batches] == (
            [rule.full.largest] * rule.num_full_batches + ([rule.last.largest] if rule.last else [])
        )


@given(**EPOCHS, shuffle=st.booleans())
@settings(max_examples=400, deadline=None)
def test_repeats_and_drops_are_counted_as_they_happen_and_named_in_order(shuffle, **epoch):
    rule = distribute(**epoch)
    drawn = [
        index for batches in torchs_epoch(**epoch, shuffle=shuffle) for batch in batches for index in batch
    ]
    assert rule.drawn == len(drawn)
    assert rule.num_repeated == len(drawn) - len(set(drawn))
    assert rule.num_dropped == epoch["data_size"] - len(set(drawn))
    if not shuffle:
        times = [drawn.count(index) for index in range(epoch["data_size"])]
        assert list(rule.repeated()) == [index for index, count in enumerate(times) if count > 1]
        assert list(rule.dropped()) == [index for index, count in enumerate(times) if count == 0]


@given(**EPOCHS, data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_sample_is_visited_where_torch_puts_it(data, **epoch):
    index = data.draw(st.integers(0, epoch["data_size"] - 1))
    seen = {
        (rank, number, row)
        for rank, batches in enumerate(torchs_epoch(**epoch))
        for number, batch in enumerate(batches, 1)
        for row, drawn in enumerate(batch)
        if drawn == index
    }
    visits = list(distribute(**epoch).visits(index))
    assert len(visits) == len(seen)
    assert set(visits) == seen


@given(
    data_size=st.integers(1, 300),
    num_gpus=st.integers(1, 12),
    batch_size=st.integers(1, 50),
    drop_last=st.booleans(),
    data=st.data(),
)
def test_under_dataparallel_a_sample_is_visited_where_torchs_chunk_puts_it(data, drop_last, **sizes):
    batches = torch.arange(sizes["data_size"]).split(sizes["batch_size"])
    seen = {
        index: Visit(device, number, row)
        for number, batch in enumerate(batches, 1)
        for device, chunk in enumerate(batch.chunk(sizes["num_gpus"]))
        for row, index in enumerate(chunk.tolist())
        if not drop_last or len(batch) == sizes["batch_size"]
    }
    number, rest = divmod(sizes["data_size"], sizes["batch_size"])
    last = split_batch(rest, sizes["num_gpus"]) if rest and not drop_last else None
    full = split_batch(sizes["batch_size"], sizes["num_gpus"])
    epoch = Epoch(sizes["data_size"], full, number, last)
    index = data.draw(st.integers(0, sizes["data_size"] - 1))
    assert list(epoch.visits(index)) == ([seen[index]] if index in seen else [])


def test_a_hundred_thousand_ranks_and_10_to_the_15_samples_are_whole_numbers():
    rule = distribute(10**15 + 1, 10**5, 1000)
    assert rule.drawn == 10**15 + 10**5
    assert rule.num_repeated == 10**5 - 1


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_to_distribute_is_an_error(numbers):
    with pytest.raises(ValueError, match=r"^expected 1 .* or more, got 0"):
        distribute(*numbers)
