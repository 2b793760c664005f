"""Tokens: the order of an epoch as torch and transformers have it, and sums against loops over rows."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.arithmetic.lengths import grouped, packed, shuffled
from dpdemo.arithmetic.tokens import Sharing, each_batch, summarize

seeds = st.integers(0, 2**63 - 1)
some_lengths = st.lists(st.integers(0, 50), max_size=200)


def torchs_order(number, seed):
    return torch.randperm(number, generator=torch.Generator().manual_seed(seed)).tolist()


@given(st.integers(0, 3000), seeds)
def test_a_shuffle_is_torchs_own(number, seed):
    assert shuffled(range(number), seed) == torchs_order(number, seed)


def test_a_shuffle_of_many_is_torchs_own():
    assert shuffled(range(200_000), 7) == torchs_order(200_000, 7)


def transformers_order(lengths, batch_size, seed):
    """get_length_grouped_indices of transformers, written again over indices."""
    times = min(len(lengths) // (batch_size * 4), 50) or 1
    order = torchs_order(len(lengths), seed)
    parts = [order[start : start + times * batch_size] for start in range(0, len(order), times * batch_size)]
    parts = [sorted(part, key=lambda index: -lengths[index]) for part in parts]
    most = max(range(len(parts)), key=lambda number: (lengths[parts[number][0]], -number))
    parts[0][0], parts[most][0] = parts[most][0], parts[0][0]
    return [lengths[index] for part in parts for index in part]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=400), st.integers(1, 12), seeds)
def test_grouping_equals_transformers(lengths, batch_size, seed):
    assert grouped(shuffled(lengths, seed), batch_size) == transformers_order(lengths, batch_size, seed)


def test_nothing_is_grouped_into_nothing():
    assert grouped([], 4) == []


@given(some_lengths, st.integers(50, 120))
def test_packing_puts_each_sample_into_the_last_row_if_it_fits(lengths, room):
    rows = []
    for length in lengths:
        if rows and sum(rows[-1]) + length <= room:
            rows[-1].append(length)
        else:
            rows.append([length])
    assert packed(lengths, room) == [sum(row) for row in rows]


def test_a_sample_longer_than_the_room_is_refused():
    with pytest.raises(ValueError, match="expected at most 4 tokens, got 5"):
        packed([1, 5], 4)


@st.composite
def epochs(draw):
    """Lengths in order, and how their batches are shared over up to five devices, idle ones among them."""
    num_devices = draw(st.integers(1, 5))
    sharings = []
    for _ in range(draw(st.integers(1, 3))):
        devices = draw(st.lists(st.integers(0, num_devices - 1), min_size=1, unique=True).map(sorted))
        in_turn = draw(st.booleans())
        rows = st.integers(1, 4)
        sizes = [draw(rows)] * len(devices) if in_turn else [draw(rows) for _ in devices]
        sharings.append(Sharing(draw(st.integers(1, 4)), tuple(sizes), tuple(devices), in_turn))
    total = sum(sharing.count * sum(sharing.rows) for sharing in sharings)
    lengths = draw(st.lists(st.integers(0, 9), min_size=total, max_size=total))
    return num_devices, sharings, lengths


def one_by_one(sharings, lengths):
    """Return the lengths on each device in each batch, row by row."""
    left = list(lengths)
    for sharing in sharings:
        for _ in range(sharing.count):
            chunks = {device: [] for device in sharing.devices}
            if sharing.in_turn:
                for row in range(sum(sharing.rows)):
                    chunks[sharing.devices[row % len(sharing.devices)]].append(left.pop(0))
            else:
                for device, rows in zip(sharing.devices, sharing.rows, strict=True):
                    for _ in range(rows):
                        chunks[device].append(left.pop(0))
            yield chunks


@given(epochs(), st.sampled_from(["chunk", "batch", 11]), st.booleans(), st.integers(1, 4))
def test_an_epochs_sums_are_those_of_a_loop_over_rows(epoch, pad_to, is_quadratic, accumulate):
    num_devices, sharings, lengths = epoch
    found = list(each_batch(lengths, sharings, pad_to, is_quadratic=is_quadratic))
    expected = list(one_by_one(*epoch[1:]))
    used = slots = padded_used = padded_slots = 0
    totals = {}
    balances = []
    for batch, chunks in zip(found, expected, strict=True):
        longest = max(max(chunk) for chunk in chunks.values())
        padded, costs = [], []
        for device, chunk in chunks.items():
            width = {"chunk": max(chunk), "batch": longest}.get(pad_to, pad_to)
            padded.append(width * len(chunk))
            costs.append(sum(length**2 if is_quadratic else length for length in chunk))
            new = (len(chunk), sum(chunk), padded[-1], costs[-1])
            totals[device] = [a + b for a, b in zip(totals.get(device, (0, 0, 0, 0)), new, strict=True)]
        assert batch.tokens == [sum(chunk) for chunk in chunks.values()]
        assert batch.padded == padded
        assert batch.cost == costs
        used, slots = used + sum(costs), slots + num_devices * max(costs)
        padded_used, padded_slots = padded_used + sum(padded), padded_slots + num_devices * max(padded)
        balances.append(sum(costs) / (num_devices * max(costs)) if max(costs) else 1.0)
    summary = summarize(found, num_devices, accumulate)
    assert summary.balance == (used / slots if slots else 1.0)
    assert summary.padded_balance == (padded_used / padded_slots if padded_slots else 1.0)
    assert summary.worst.number == balances.index(min(balances)) + 1
    held = {
        device: [figures.rows, figures.tokens, figures.padded, figures.cost]
        for device, figures in summary.devices.items()
    }
    assert held == totals


@given(epochs(), st.integers(1, 4))
def test_a_tokens_weight_is_its_part_of_the_mean_of_means_over_its_part_of_one_mean(epoch, accumulate):
    num_devices, sharings, lengths = epoch
    chunks = list(one_by_one(*epoch[1:]))
    weights = []
    for start in range(0, len(chunks), accumulate):
        step = chunks[start : start + accumulate]
        everything = sum(sum(chunk) for batch in step for chunk in batch.values())
        for number, batch in enumerate(step, start + 1):
            for device, chunk in batch.items():
                if sum(chunk):
                    share = Fraction(1, len(step) * len(batch) * sum(chunk))
                    weights.append((float(share * everything), number, device))
    summary = summarize(each_batch(lengths, sharings, "batch"), num_devices, accumulate)
    if not weights:
        assert summary.heaviest is summary.lightest is None
        return
    values = [weight for weight, _, _ in weights]
    assert summary.heaviest.weight == pytest.approx(max(values))
    assert summary.lightest.weight == pytest.approx(min(values))
    for found in (summary.heaviest, summary.lightest):
        at_its_place = [weight for weight, *place in weights if place == [found.batch, found.device]]
        assert at_its_place == [pytest.approx(found.weight)]
    empty = [number for number, batch in enumerate(chunks, 1) if not all(map(sum, batch.values()))]
    assert summary.without_tokens == (empty[0] if empty else None)


def test_the_known_case_of_gradient_accumulation():
    """Two batches of 1 and 3 tokens on one device: a mean of means counts them 2 and 2/3 times."""
    summary = summarize(each_batch([1, 3], [Sharing(2, (1,), (0,))], "batch"), 1, accumulate=2)
    assert (summary.heaviest.weight, summary.lightest.weight) == (2.0, pytest.approx(2 / 3))
    assert (summary.heaviest.of, summary.heaviest.last, summary.heaviest.num_batches) == (4, 2, 2)
    assert math.isclose(summary.balance, 1.0)
