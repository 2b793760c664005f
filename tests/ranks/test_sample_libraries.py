"""Loaders of real libraries: each program prints what each rank drew, and the report has to say the same.

torch 2.13.0, accelerate 1.15.0, datasets 5.2.0, torchdata 0.11.0, webdataset 1.0.2, pytorch-ignite 0.5.5,
opacus 1.6.0, grain 0.2.18, monai 1.6.1, fastai 2.8.12, DALI 2.4.0 (nvidia-dali-cuda120, which also runs
without a GPU). The test of a missing library is skipped.
"""

import json
import re
import subprocess
import sys

import pytest

_HEAD = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler

def begin():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    net = DistributedDataParallel(torch.nn.Linear(1, 1).cuda())
    return dist.get_rank(), dist.get_world_size(), net, torch.optim.SGD(net.parameters(), 1e-4)

def train(net, optimizer, loader, epochs=1, get=lambda batch: batch):
    for _ in range(epochs):
        drawn = []
        for batch in loader:
            rows = torch.as_tensor(get(batch))
            drawn.append(rows.int().flatten().tolist())
            optimizer.zero_grad()
            net(rows.float().view(-1, 1).cuda()).square().mean().backward()
            optimizer.step()
        print(f"TRUTH {os.environ['RANK']} {drawn}", flush=True)
"""
_ACCELERATE = """
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(OPTIONS))
net = torch.nn.Linear(1, 1)
net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 1e-4), LOADER)
train(net, optimizer, loader, 2, GET)
"""
_STREAM = """
class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))
"""
_BY_NODE = """
from datasets import Dataset
from datasets.distributed import split_dataset_by_node
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""


def _accelerate(loader, options="", before="", get="lambda batch: batch"):
    return before + _ACCELERATE.replace("OPTIONS", options).replace("LOADER", loader).replace("GET", get)


_RANKS = "rank, world, net, optimizer = begin()\n"
_PLAIN = {
    "torch, workers": """
order = DistributedSampler(range(11))
train(net, optimizer, DataLoader(range(11), 2, sampler=order, num_workers=2), 2)
""",
    "torch, a stream": f"{_STREAM}train(net, optimizer, DataLoader(Stream(), 4, num_workers=2))",
    "torch, no batches": """
train(net, optimizer, DataLoader(range(6), None, sampler=DistributedSampler(range(6))))
""",
    "torch, a loop of its own": "train(net, optimizer, [[at, at + 1] for at in range(2 * rank, 12, 4)])",
    "datasets, a stream": f"""{_BY_NODE}
data = Dataset.from_dict({{"x": list(range(16))}}).to_iterable_dataset(num_shards=4)
data = split_dataset_by_node(data.with_format("torch"), rank, world)
train(net, optimizer, DataLoader(data, 2, num_workers=1), 2, lambda batch: batch["x"])
""",
    "torchdata": """
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler
order = StatefulDistributedSampler(range(10))
train(net, optimizer, StatefulDataLoader(range(10), 2, sampler=order, num_workers=2), 2)
""",
    "webdataset": """
import webdataset
for shard in range(4 if rank == 0 else 0):
    with webdataset.TarWriter(f"{shard}.tar") as tar:
        for at in range(4 * shard, 4 * shard + 4):
            tar.write({"__key__": f"{at:04d}", "x.pyd": at})
dist.barrier()
files, split = [f"{shard}.tar" for shard in range(4)], webdataset.split_by_node
data = webdataset.WebDataset(files, nodesplitter=split, shardshuffle=False).decode().to_tuple("x.pyd")
loader = webdataset.WebLoader(data.batched(2), batch_size=None)
train(net, optimizer, loader, 1, lambda batch: batch[0])
""",
    "ignite": """
import ignite.distributed
loader = ignite.distributed.auto_dataloader(list(range(10)), batch_size=4, shuffle=True)
train(net, optimizer, loader)
""",
    "opacus": """
from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler
torch.manual_seed(rank)
order = DistributedUniformWithReplacementSampler(total_size=16, sample_rate=0.5, generator=None)
train(net, optimizer, DataLoader(range(16), batch_sampler=order))
""",
    "grain": """
import grain.python as grain
part = grain.ShardOptions(rank, world)
order = grain.IndexSampler(11, shard_options=part, num_epochs=2, shuffle=False)
loader = grain.DataLoader(
    data_source=grain.RangeDataSource(0, 11, 1), sampler=order, shard_options=part, worker_count=0,
    operations=[grain.Batch(2)],
)
train(net, optimizer, loader)
""",
    "nvidia.dali": """
import numpy
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
files = [f"{at:02}.npy" for at in range(11)]
for at, name in enumerate(files if rank == 0 else []):
    numpy.save(name, numpy.float32([at]))
dist.barrier()
@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def read():
    return fn.readers.numpy(files=files, shard_id=rank, num_shards=world, name="files")
last = LastBatchPolicy.PARTIAL
loader = DALIGenericIterator(read(), ["x"], reader_name="files", last_batch_policy=last)
train(net, optimizer, loader, get=lambda batch: batch[0]["x"])
""",
    "fastai": """
from fastai.data.load import DataLoader as FastLoader
train(net, optimizer, FastLoader(list(range(10)), bs=2, shuffle=True), 2)
""",
}
_PREPARED = {
    "accelerate": _accelerate("DataLoader(range(10), 4, shuffle=True)"),
    "accelerate, split": _accelerate("DataLoader(range(10), 4)", "split_batches=True"),
    "accelerate, dispatch": _accelerate("DataLoader(range(10), 4)", "dispatch_batches=True"),
    "accelerate, a stream": _accelerate("DataLoader(Stream(), 4)", before=_STREAM),
    "accelerate, each reads": _accelerate("DataLoader(Stream(), 4)", "dispatch_batches=False", _STREAM),
}
_PROGRAMS = {name: _RANKS + program for name, program in _PLAIN.items()} | _PREPARED


def run(tmp_path, program):
    """Run a program on two ranks; return its report, and what it drew by rank and pass."""
    (tmp_path / "train.py").write_text(_HEAD + program, "utf-8")
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", "--report", "report.json", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    truth = {0: [], 1: []}
    for rank, drawn in re.findall(r"TRUTH (\d) (.*)", done.stdout):
        truth[int(rank)].append(json.loads(drawn))
    assert all(truth.values()), done.stdout
    return json.loads((tmp_path / "report.json").read_text("utf-8")), truth


@pytest.mark.slow
@pytest.mark.parametrize("name", _PROGRAMS)
def test_the_report_has_what_each_rank_drew(tmp_path, monkeypatch, name):
    library = name.partition(",")[0]
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    report, truth = run(tmp_path, _PROGRAMS[name])
    for rank in report["ranks"]:
        passes = [each for loader in rank["samples"] for each in loader["passes"]]
        drawn = [[[int(sample) for sample in batch] for batch in each["batches"]] for each in passes]
        assert drawn == truth[rank["rank"]]
        assert [each["trained"] for each in passes] == [each["drawn"] for each in passes]
    (covered,) = report["coverage"]
    firsts = [sample for mine in truth.values() for batch in mine[0] for sample in batch]
    assert (covered["drawn"], covered["num_distinct"]) == (len(firsts), len(set(firsts)))
    times = [firsts.count(sample) for sample in set(firsts)]
    assert covered["times"] == {str(count): times.count(count) for count in set(times)}


_PARTS = """
from monai.data import CacheDataset, ThreadDataLoader, partition_dataset
rows = [{"i": torch.tensor([float(at)])} for at in range(9)]
part = partition_dataset(rows, num_partitions=2, shuffle=False, even_divisible=True)[rank]
loader = ThreadDataLoader(CacheDataset(part, progress=False), batch_size=2, num_workers=0)
train(net, optimizer, loader, 1, lambda batch: batch["i"])
"""


@pytest.mark.slow
def test_sets_that_each_rank_made_are_one_set(tmp_path):
    pytest.importorskip("monai", reason="monai is not installed")
    report, truth = run(tmp_path, _RANKS + _PARTS)
    assert truth == {0: [[[0, 2], [4, 6], [8]]], 1: [[[1, 3], [5, 7], [0]]]}
    (covered,) = report["coverage"]
    assert (covered["drawn"], covered["length"], covered["num_repeated"]) == (10, 9, 1)
    assert report["mistakes"] == []


@pytest.mark.slow
def test_a_set_that_is_split_twice_is_named(tmp_path):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    pytest.importorskip("datasets", reason="datasets is not installed")
    before = _BY_NODE + (
        "data = Dataset.from_dict({'x': list(range(16))}).with_format('torch')\n"
        "data = split_dataset_by_node(data, rank, world)\n"
    )
    program = _accelerate("DataLoader(data, 2)", before=before, get="lambda batch: batch['x']")
    report, truth = run(tmp_path, program)
    assert truth[0] == [[[0, 1], [4, 5]]] * 2
    (covered,) = report["coverage"]
    assert (covered["drawn"], covered["length"], covered["num_left_out"]) == (8, 16, 8)
    (found,) = report["mistakes"]
    assert "8 of 16 samples were left out" in found["text"]
