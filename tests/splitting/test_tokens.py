"""`simulate(lengths=...)` against torch's own samplers and chunks, and the options' rules."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from dpdemo import UsageError, simulate

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=60)
seeds = st.none() | st.integers(0, 2**40)


def options_of(seed, **options):
    return options if seed is None else {**options, "shuffle": True, "seed": seed}


@settings(max_examples=40, deadline=None)
@given(lengths, st.integers(1, 9), st.integers(1, 6), seeds)
def test_data_parallel_chunks_the_batches_of_torchs_sampler(values, batch_size, gpus, seed):
    generator = torch.Generator().manual_seed(seed or 0)
    sampler = SequentialSampler(values) if seed is None else RandomSampler(values, generator=generator)
    expected = []
    for batch in BatchSampler(sampler, batch_size, drop_last=False):
        tensor = torch.tensor([values[index] for index in batch])
        longest = int(tensor.max())
        chunks = tensor.chunk(gpus)
        expected.append(([int(chunk.sum()) for chunk in chunks], [len(chunk) * longest for chunk in chunks]))
    report = simulate(lengths=values, gpus=gpus, batch_size=batch_size, **options_of(seed))
    assert [(batch.tokens, batch.padded) for batch in report.tokens.each_batch()] == expected


@settings(max_examples=40, deadline=None)
@given(lengths, st.integers(1, 9), st.integers(1, 6), seeds, st.tuples(st.booleans(), st.booleans()))
def test_ddp_has_the_batches_of_torchs_distributed_sampler(values, batch_size, ranks, seed, drops):
    drop_last, sampler_drop_last = drops
    if sampler_drop_last and len(values) < ranks:
        sampler_drop_last = False
    by_rank = []
    for rank in range(ranks):
        sampler = DistributedSampler(
            values, ranks, rank, shuffle=seed is not None, seed=seed or 0, drop_last=sampler_drop_last
        )
        ours = [[values[index] for index in batch] for batch in BatchSampler(sampler, batch_size, drop_last)]
        by_rank.append([(sum(batch), len(batch) * max(batch)) for batch in ours])
    expected = [tuple(map(list, zip(*batch, strict=True))) for batch in zip(*by_rank, strict=True)]
    options = options_of(seed, drop_last=drop_last, sampler_drop_last=sampler_drop_last)
    if not expected:
        return
    report = simulate(lengths=values, gpus=ranks, strategy="ddp", batch_size=batch_size, **options)
    assert [(batch.tokens, batch.padded) for batch in report.tokens.each_batch()] == expected


def test_a_gpu_without_rows_has_no_tokens():
    report = simulate(lengths=range(1, 5), gpus=3, batch_size=4)
    assert report.tokens.summary.devices.keys() == {0, 1}
    assert [device["tokens"] for device in report.to_dict()["tokens"]["devices"]] == [3, 7, 0]
    assert [row["tokens"] for row in report.rows()] == [3, 7, 0, 10]


def test_one_device_has_no_balance_but_accumulates():
    report = simulate(lengths=[1, 3], batch_size=1, accumulate=2)
    assert [fact[0] for fact in report.tokens.facts()] == ["Tokens", "Token weight", "Right divisor"]
    assert report.tokens.grouped is None


def test_sorting_puts_the_longest_first():
    report = simulate(lengths=[1, 3, 2], gpus=3, batch_size=3, sort=True)
    assert next(report.tokens.each_batch()).tokens == [3, 2, 1]


def test_the_quadratic_cost_is_that_of_rows():
    plain = simulate(lengths=[1, 3, 2, 2], gpus=2, batch_size=4)
    squared = simulate(lengths=[1, 3, 2, 2], gpus=2, batch_size=4, cost="quadratic")
    assert plain.tokens.summary.balance == 1.0
    assert squared.tokens.summary.balance == (10 + 8) / (2 * 10)


def test_a_replica_without_a_token_is_warned_of():
    report = simulate(lengths=[3, 0], gpus=2, batch_size=2)
    assert "batch 1: a GPU has rows and no token; a mean over none is NaN" in str(report).replace(
        "\n" + " " * 15, " "
    )


def test_a_config_file_may_set_the_data_size(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("gpus: 2\ndata_size: 2\n")
    assert simulate(path, lengths=[1, 2, 3]).tokens.num_samples == 2
    path.write_text("gpus: 2\n")
    assert simulate(path, lengths=[1, 2, 3]).tokens.num_samples == 3


@pytest.mark.parametrize("given", [{"sort": True}, {"group_by_length": True}, {"pack": 9}])
def test_a_sample_is_traced_only_in_order(given):
    assert simulate(lengths=[1, 2, 3], gpus=2, trace_sample=2).trace.stops
    with pytest.raises(UsageError, match="expected samples in order, to trace one, got another order"):
        simulate(lengths=[1, 2, 3], gpus=2, trace_sample=2, **given)
