"""Unequal shares of an epoch for ranks, against the epoch cut by hand."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.arithmetic.sampler import Visit, deal
from dpdemo.arithmetic.weights import split_by_chunks

EPOCHS = {
    "data_size": st.integers(1, 300),
    "chunks": st.lists(st.integers(1, 20), min_size=1, max_size=12),
    "drop_last": st.booleans(),
    "sampler_drop_last": st.booleans(),
}


def dealt(data_size, chunks, **how):
    return deal(data_size, split_by_chunks(sum(chunks), chunks), **how)


def batches_of(epoch, rank):
    """Cut what a rank draws into its batches, as its loader does: by the rows of a full batch."""
    drawn = list(epoch.positions(rank))
    rows = epoch.full.rows()[rank]
    return [drawn[start : start + rows] for start in range(0, len(drawn), rows)]


@settings(max_examples=300)
@given(**EPOCHS)
def test_a_step_takes_the_next_rows_and_every_rank_takes_part_in_each(chunks, data_size, **how):
    epoch = dealt(data_size, chunks, **how)
    batches = [batches_of(epoch, rank) for rank in range(len(chunks))]
    assert {len(of_rank) for of_rank in batches} == {epoch.num_batches}
    steps = [[place for batch in step for place in batch] for step in zip(*batches, strict=True)]
    assert [place for step in steps for place in step] == [place % data_size for place in range(epoch.drawn)]
    assert all(len(step) == sum(chunks) for step in steps[: epoch.num_full_batches])
    assert all(batch for of_rank in batches for batch in of_rank)


@given(**EPOCHS)
def test_samples_are_repeated_only_where_a_rank_would_have_none(chunks, data_size, **how):
    epoch = dealt(data_size, chunks, **how)
    rest = data_size % sum(chunks)
    needs_more = rest and split_by_chunks(rest, chunks).num_idle
    if how["drop_last"] or (how["sampler_drop_last"] and needs_more):
        assert (epoch.num_repeated, epoch.num_dropped) == (0, rest)
    elif needs_more:
        assert (epoch.num_repeated > 0, epoch.num_dropped) == (True, 0)
        assert epoch.num_repeated < sum(chunks)
    else:
        assert (epoch.num_repeated, epoch.num_dropped, epoch.drawn) == (0, 0, data_size)


@given(**EPOCHS)
def test_a_sample_is_visited_where_it_is_drawn(chunks, data_size, **how):
    epoch = dealt(data_size, chunks, **how)
    found = {position: [] for position in range(data_size)}
    for rank in range(len(chunks)):
        for number, batch in enumerate(batches_of(epoch, rank)):
            for row, position in enumerate(batch):
                found[position].append(Visit(rank, number + 1, row))
    for position, visits in found.items():
        assert sorted(epoch.visits(position)) == sorted(visits)


@pytest.mark.parametrize("split", [split_batch(2, 3), split_by_chunks(3, (0, 3)), split_batch(0, 2)])
def test_a_rank_without_a_row_is_an_error(split):
    with pytest.raises(ValueError, match="expected a row for each rank, got"):
        deal(10, split)


def test_an_epoch_without_a_sample_is_an_error():
    with pytest.raises(ValueError, match="expected 1 sample or more, got 0"):
        deal(0, split_batch(2, 2))
