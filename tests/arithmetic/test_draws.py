"""The rules of loaders: against what was measured, and against the libraries themselves over random sizes.

The libraries are accelerate 1.15.0, datasets 5.2.0, lightning 2.6.6, timm 1.0.31, grain 0.2.18, fastai
2.8.12, pytorch-ignite 0.5.5, mosaicml-streaming 0.13.0 and litdata 0.2.76; the test of one that is not
installed is skipped by its name.
"""

import importlib.util
import json
import random
import subprocess
import sys
import warnings
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
    ("streaming", 10, 4, 2, False): [[[0, 4], [8]], [[1, 5], [9]], [[2, 6], [5]], [[3, 7], [6]]],
    ("litdata", 10, 4, 1, False): [[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]],
    ("litdata-uneven", 10, 2, 2, False): [[[0, 1], [2, 3]], [[4, 5], [6, 7], [8, 9]]],
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
    found = RULES[name].find(samples, ranks, batch, drop_last)
    assert len(found) == ranks
    assert all(0 <= sample < samples for batches in found for rows in batches for sample in rows)
    assert all(len(rows) <= batch for batches in found for rows in batches)


_WHOLE = (
    "torch",
    "accelerate",
    "accelerate-uneven",
    "accelerate-dispatch",
    "datasets",
    "fastai",
    "streaming",
)


@given(st.sampled_from([*_WHOLE, "litdata-uneven"]), _SIZES)
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


_DISPATCH = """
import json, os, sys
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
rank, found = accelerator.process_index, []
for samples, batch, drop_last in json.loads(sys.argv[1]):
    loader = accelerator.prepare(DataLoader(range(samples), batch, drop_last=drop_last))
    found.append([rows.tolist() for rows in loader])
with open(f"{sys.argv[2]}/{rank}.json", "w") as file:
    json.dump(found, file)
accelerator.wait_for_everyone()
os._exit(0)  # a thread of gloo that drops tensors while Python ends aborts the process
"""


@pytest.mark.slow
def test_dispatch_is_as_its_loader(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    ranks = 3
    sizes = [(samples, batch, drop) for samples, _, batch, drop in _sizes(60) if samples >= batch * ranks]
    (tmp_path / "dispatch.py").write_text(_DISPATCH, "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(tmp_path / "dispatch.py"), json.dumps(sizes), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    drawn = [json.loads((tmp_path / f"{rank}.json").read_text("utf-8")) for rank in range(ranks)]
    for number, (samples, batch, drop_last) in enumerate(sizes):
        found = RULES["accelerate-dispatch"].find(samples, ranks, batch, drop_last)
        assert found == [mine[number] for mine in drawn], (samples, batch, drop_last)


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


@pytest.mark.slow
def test_fastai_is_as_its_loader():
    loading = pytest.importorskip("fastai.data.load", reason="fastai is not installed")
    distributed = pytest.importorskip("fastai.distributed", reason="fastai is not installed")

    class Alone(distributed.DistributedDL):
        def _broadcast(self, order, _):  # each rank has the same order, and no other to ask
            return order

    for samples, ranks, batch, drop_last in _sizes():
        drawn = []
        for rank in range(ranks):
            loader = loading.DataLoader(list(range(samples)), bs=batch, drop_last=drop_last)
            split = Alone(loader, rank=rank, world_size=ranks, device="cpu")
            drawn.append([rows.tolist() for rows in split])
        assert RULES["fastai"].find(samples, ranks, batch, drop_last) == drawn, (samples, ranks, batch)


@pytest.mark.slow
def test_ignite_is_as_its_loader(monkeypatch):
    ignite = pytest.importorskip("ignite.distributed", reason="pytorch-ignite is not installed")
    world = importlib.import_module("ignite.distributed.utils")
    for samples, ranks, batch, drop_last in _sizes():
        if batch < ranks:
            continue  # a rank without a row is refused
        drawn = []
        for rank in range(ranks):
            monkeypatch.setattr(world, "get_rank", lambda rank=rank: rank)
            for name in ("get_world_size", "get_nproc_per_node"):
                monkeypatch.setattr(world, name, lambda ranks=ranks: ranks)
            options = {"batch_size": batch, "shuffle": False, "drop_last": drop_last}
            loader = ignite.auto_dataloader(list(range(samples)), **options)
            drawn.append([rows.tolist() for rows in loader])
        assert RULES["ignite"].find(samples, ranks, batch, drop_last) == drawn, (samples, ranks, batch)


@pytest.mark.slow
def test_streaming_is_as_its_partition():
    from torch.utils.data import BatchSampler

    found = importlib.util.find_spec("streaming")
    if found is None:
        pytest.skip("mosaicml-streaming is not installed")
    file = Path(str(found.origin)).parent / "base" / "partition" / "orig.py"  # without torchvision
    spec = importlib.util.spec_from_file_location("streaming_partition", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for samples, ranks, batch, drop_last in _sizes():
        with warnings.catch_warnings(action="ignore"):  # some sizes repeat many samples
            parts = module.get_partitions_orig(samples, 1, 1, ranks, 1, batch)[0]
        rows = [[int(row) for row in parts[rank].flatten() if row >= 0] for rank in range(ranks)]
        drawn = [list(BatchSampler(mine, batch, drop_last)) for mine in rows]
        assert RULES["streaming"].find(samples, ranks, batch, drop_last) == drawn, (samples, ranks, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["litdata", "litdata-uneven"])
def test_litdata_is_as_its_intervals(name):
    shuffle = pytest.importorskip("litdata.utilities.shuffle", reason="litdata is not installed")
    from litdata.utilities.env import _DistributedEnv
    from torch.utils.data import BatchSampler

    for samples, ranks, batch, given_drop in _sizes():
        drop_last = given_drop or (name == "litdata" and ranks > 1)
        starts = range(0, samples, 7)  # chunks of 7 samples
        chunks = [(start, start, min(samples, start + 7), min(samples, start + 7)) for start in starts]
        _, parts = shuffle._associate_chunks_and_intervals_to_workers(
            _DistributedEnv(ranks, 0, 1), range(len(chunks)), chunks, drop_last, 1, batch
        )
        rows = [[row for _, first, end, _ in mine for row in range(first, end)] for mine in parts]
        drawn = [list(BatchSampler(mine, batch, drop_last)) for mine in rows]
        assert RULES[name].find(samples, ranks, batch, given_drop) == drawn, (samples, ranks, batch)
