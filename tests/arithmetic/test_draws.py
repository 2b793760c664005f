"""The rules of loaders: against what was measured, and against the libraries themselves over random sizes.

The libraries are accelerate 1.15.0, datasets 5.2.0, lightning 2.6.6, timm 1.0.31 and grain 0.2.18; the test
of one that is not installed is skipped by its name.
"""

import importlib.util
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.arithmetic.draws import RULES

_SIZES = st.tuples(st.integers(0, 40), st.integers(1, 6), st.integers(1, 6), st.booleans())
_MEASURED = {
    ("accelerate", 10, 2, 4, False): [[[0, 1, 2, 3], [8, 9, 0, 1]], [[4, 5, 6, 7], [2, 3, 4, 5]]],
    ("accelerate", 4, 3, 4, False): [[[0, 1, 2, 3]]] * 3,
    ("accelerate", 14, 2, 4, True): [[[0, 1, 2, 3]], [[4, 5, 6, 7]]],
    ("accelerate-uneven", 10, 2, 4, False): [[[0, 1, 2, 3], [8, 9]], [[4, 5, 6, 7]]],
    ("accelerate-split", 10, 2, 4, False): [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [0, 1]]],
    ("accelerate-dispatch", 10, 2, 4, False): [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7], [9]]],
    ("lightning-predict", 5, 2, 2, False): [[[0, 2], [4]], [[1, 3]]],
    ("datasets", 10, 4, 4, False): [[[0, 1, 2]], [[3, 4, 5]], [[6, 7]], [[8, 9]]],
    ("fastai", 10, 4, 2, False): [[[0, 1], [2]], [[3, 4], [5]], [[6, 7], [8]], [[9, 0], [1]]],
    ("timm-ordered", 10, 4, 3, False): [[[0, 4, 8]], [[1, 5, 9]], [[2, 6, 0]], [[3, 7, 1]]],
    ("grain", 10, 4, 2, False): [[[0, 1]], [[3, 4]], [[6, 7]], [[8, 9]]],
}


@pytest.mark.parametrize(("name", "samples", "ranks", "batch", "drop_last"), _MEASURED)
def test_a_rule_gives_what_was_measured(name, samples, ranks, batch, drop_last):
    measured = _MEASURED[name, samples, ranks, batch, drop_last]
    assert RULES[name].find(samples, ranks, batch, drop_last) == measured


@given(st.sampled_from(sorted(RULES)), _SIZES)
def test_each_rank_draws_samples_of_the_set_in_batches_that_are_not_too_large(name, sizes):
    samples, ranks, batch, drop_last = sizes
    if (name == "accelerate-split" and batch % ranks) or (name == "ignite" and batch < ranks):
        return
    drop_last &= name != "accelerate-dispatch"
    found = RULES[name].find(samples, ranks, batch, drop_last)
    assert len(found) == ranks
    assert all(0 <= sample < samples for batches in found for rows in batches for sample in rows)
    assert all(len(rows) <= batch for batches in found for rows in batches)


@given(st.sampled_from(["torch", "accelerate", "accelerate-uneven", "datasets", "fastai"]), _SIZES)
def test_no_sample_is_left_out_unless_batches_are_dropped(name, sizes):
    samples, ranks, batch, _ = sizes
    found = RULES[name].find(samples, ranks, batch, False)
    assert {sample for batches in found for rows in batches for sample in rows} == set(range(samples))


def _sizes(count=200):
    chosen = random.Random(0)  # noqa: S311 - sizes
    return [
        (chosen.randint(1, 40), chosen.randint(1, 6), chosen.randint(1, 6), chosen.random() < 0.5)
        for _ in range(count)
    ]


def test_torch_is_as_its_sampler():
    from torch.utils.data import BatchSampler, DistributedSampler

    for samples, ranks, batch, drop_last in _sizes():
        samplers = [DistributedSampler(range(samples), ranks, rank, shuffle=False) for rank in range(ranks)]
        drawn = [list(BatchSampler(each, batch, drop_last)) for each in samplers]
        assert RULES["torch"].find(samples, ranks, batch, drop_last) == drawn, (samples, ranks, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accelerate", "accelerate-split", "accelerate-uneven"])
def test_accelerate_is_as_its_batch_sampler(name):
    shards = pytest.importorskip("accelerate.data_loader", reason="accelerate is not installed")
    from torch.utils.data import BatchSampler

    options = {"split_batches": name == "accelerate-split", "even_batches": name != "accelerate-uneven"}
    for samples, ranks, given_batch, drop_last in _sizes():
        batch = given_batch * ranks if options["split_batches"] else given_batch
        drawn = []
        for rank in range(ranks):
            batches = BatchSampler(range(samples), batch, drop_last)
            shard = shards.BatchSamplerShard(batches, num_processes=ranks, process_index=rank, **options)
            drawn.append([list(rows) for rows in shard])
        assert RULES[name].find(samples, ranks, batch, drop_last) == drawn, (samples, ranks, batch)


@pytest.mark.slow
def test_datasets_is_as_its_split_by_node():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    distributed = importlib.import_module("datasets.distributed")
    from torch.utils.data import BatchSampler

    for samples, ranks, batch, drop_last in _sizes(20):
        data = datasets.Dataset.from_dict({"x": list(range(samples))})
        parts = [distributed.split_dataset_by_node(data, rank, ranks)["x"][:] for rank in range(ranks)]
        drawn = [list(BatchSampler(part, batch, drop_last)) for part in parts]
        assert RULES["datasets"].find(samples, ranks, batch, drop_last) == drawn, (samples, ranks, batch)


@pytest.mark.slow
def test_a_stream_of_datasets_is_as_its_split_by_node():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    distributed = importlib.import_module("datasets.distributed")
    from torch.utils.data import BatchSampler

    for samples, ranks, batch, drop_last in _sizes(20):
        if ranks == 1:
            continue
        stream = datasets.Dataset.from_dict({"x": list(range(samples))}).to_iterable_dataset()
        nodes = [distributed.split_dataset_by_node(stream, rank, ranks) for rank in range(ranks)]
        drawn = [list(BatchSampler([row["x"] for row in node], batch, drop_last)) for node in nodes]
        assert RULES["datasets-stream"].find(samples, ranks, batch, drop_last) == drawn


@pytest.mark.slow
def test_lightning_predicts_as_its_sampler():
    overrides = pytest.importorskip(
        "lightning.pytorch.overrides.distributed", reason="lightning is not installed"
    )
    from torch.utils.data import BatchSampler

    for samples, ranks, batch, drop_last in _sizes():
        if samples < ranks:
            continue  # Lightning refuses a rank without a sample
        kind = overrides.UnrepeatedDistributedSampler
        samplers = [kind(range(samples), ranks, rank, shuffle=False) for rank in range(ranks)]
        drawn = [list(BatchSampler(each, batch, drop_last)) for each in samplers]
        assert RULES["lightning-predict"].find(samples, ranks, batch, drop_last) == drawn


@pytest.mark.slow
def test_timm_is_as_its_ordered_sampler():
    from torch.utils.data import BatchSampler

    found = importlib.util.find_spec("timm")
    if found is None:
        pytest.skip("timm is not installed")
    file = Path(str(found.origin)).parent / "data" / "distributed_sampler.py"  # without torchvision
    spec = importlib.util.spec_from_file_location("timm_samplers", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for samples, ranks, batch, drop_last in _sizes():
        samplers = [module.OrderedDistributedSampler(range(samples), ranks, rank) for rank in range(ranks)]
        drawn = [list(BatchSampler(each, batch, drop_last)) for each in samplers]
        assert RULES["timm-ordered"].find(samples, ranks, batch, drop_last) == drawn


@pytest.mark.slow
def test_grain_is_as_its_loader():
    grain = pytest.importorskip("grain.python", reason="grain is not installed")
    for samples, ranks, batch, drop_last in _sizes(30):
        if samples < ranks:
            continue  # an empty shard is refused
        drawn = []
        for rank in range(ranks):
            options = grain.ShardOptions(rank, ranks)
            sampler = grain.IndexSampler(samples, shard_options=options, num_epochs=1, shuffle=False)
            loader = grain.DataLoader(
                data_source=grain.RangeDataSource(0, samples, 1), sampler=sampler, shard_options=options,
                worker_count=0, operations=[grain.Batch(batch, drop_remainder=drop_last)],
            )  # fmt: skip
            drawn.append([rows.tolist() for rows in loader])
        assert RULES["grain"].find(samples, ranks, batch, drop_last) == drawn, (samples, ranks, batch)
