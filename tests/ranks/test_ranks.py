"""`dpdemo exec --ranks N`: programs written for NCCL run as ranks, and mismatches are named.

The oracle is a plain CPU module that gets the rows of all ranks in one process.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fastpart import mostly_slow
from processes import wait_for

_START = """
import os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
"""
_TRAINING = """
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.device_mesh import init_device_mesh

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

def train(model, take):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    rows = torch.Generator().manual_seed(1)
    for _ in range(3):
        data, target = torch.randn(8, 8, generator=rows), torch.randn(8, 2, generator=rows)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(take(data)), take(target)).backward()
        optimizer.step()

def mine(rows):
    return rows.chunk(size)[rank].cuda()

expected = make()
train(expected, lambda rows: rows)

def compare(model):
    for given, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        whole = given.full_tensor() if isinstance(given, DTensor) else given
        assert whole.device == torch.device("cuda", rank), whole.device
        torch.testing.assert_close(whole.cpu(), wanted)
"""
_WAYS = {
    "ddp without set_device": """
torch.cuda.set_device(0)
model = DistributedDataParallel(make().to(rank), device_ids=[rank])
train(model, lambda rows: rows.chunk(size)[rank].to(rank))
compare(model)""",
    "ddp": """
model = DistributedDataParallel(make().cuda(), device_ids=[rank])
train(model, mine)
compare(model)""",
    "ddp with options": """
def averaged(group, bucket):
    future = dist.all_reduce(bucket.buffer() / size, group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])

for options in (
    {"static_graph": True},
    {"find_unused_parameters": True},
    {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0001},
):
    model = DistributedDataParallel(make().cuda(), device_ids=[rank], **options)
    model.register_comm_hook(None, averaged)
    train(model, mine)
    compare(model)""",
    "fsdp1 offloaded": """
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
model = FullyShardedDataParallel(
    make().cuda(), use_orig_params=True, cpu_offload=CPUOffload(True),
    auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
)
train(model, mine)
assert all(parameter.device.type == "cpu" for parameter in model.parameters())
with FullyShardedDataParallel.summon_full_params(model):
    for given, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(given.cpu(), wanted)""",
    "hybrid fsdp2": """
model = make().cuda()
mesh = init_device_mesh("cuda", (size, 1), mesh_dim_names=("copies", "shards"))
fully_shard(model[0], mesh=mesh, reshard_after_forward=False)
fully_shard(model, mesh=mesh)
train(model, mine)
compare(model)""",
    "fsdp1": """
model = FullyShardedDataParallel(make().cuda(), use_orig_params=True)
train(model, mine)
with FullyShardedDataParallel.summon_full_params(model):
    compare(model)""",
    "fsdp2": """
model = make().cuda()
fully_shard(model[0])
fully_shard(model)
train(model, mine)
compare(model)""",
    "tensor parallel": """
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
model = parallelize_module(make().cuda(), init_device_mesh("cuda", (size,)), plan)
train(model, lambda rows: rows.cuda())
compare(model)
whole = DTensor.from_local(torch.ones(2, 2).cuda(), model[0].weight.device_mesh).requires_grad_()
whole.sum().backward()  # a loss that is a DTensor
assert whole.grad.full_tensor().tolist() == [[1.0, 1.0]] * 2""",
}


def run(folder, program, *options):
    (folder / "train.py").write_text(program, "utf-8")
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", *options, "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_training_equals_one_process_with_the_rows_of_all_ranks(tmp_path):
    ways = [f"torch.cuda.set_device(rank)\nprint({name!r})\n{text}\n" for name, text in _WAYS.items()]
    result = run(tmp_path, "".join([_START, _TRAINING, *ways]), "--report", "report.json")
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert [rank["exit_code"] for rank in report["ranks"]] == [0, 0]
    assert all(rank["collectives"] for rank in report["ranks"])


_SPREAD = """
class Spread(nn.Sequential):
    def forward(self, rows):
        for layer in self:
            rows = layer(rows.to(layer.weight.device) if isinstance(layer, nn.Linear) else rows)
        return rows.to(self[0].weight.device)

for name in "find_unused_parameters", "static_graph", "gradient_as_bucket_view", None:
    options = {name: True} if name else {}
    own = make()
    own[0].to(2 * rank)
    own[2].to(2 * rank + 1)
    model = DistributedDataParallel(Spread(*own), **options)
    train(model, lambda rows: rows.chunk(size)[rank].to(2 * rank))
    for given, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        assert given.grad.device == given.device
        torch.testing.assert_close(given.cpu(), wanted)
    assert {given.device.index for given in model.parameters()} == {2 * rank, 2 * rank + 1}
"""


@pytest.mark.slow
def test_a_model_on_two_gpus_of_each_rank_trains_as_on_one(tmp_path):
    result = run(tmp_path, _START + _TRAINING + _SPREAD, "--gpus", "4")
    assert result.returncode == 0, result.stderr


_COLLECTIVES = """
import torch.distributed._functional_collectives as functional
from torch.distributed import _symmetric_memory as symmetric_memory
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.utils.cpp_extension import load

def attend(_):
    query = torch.randn(1, 2, 8, 4, device="cuda")
    with context_parallel(init_device_mesh("cuda", (2,)), buffers=[query], buffer_seq_dims=[2]):
        return nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
backend = dist.get_backend()
assert backend == "nccl" and dist.is_nccl_available(), backend
assert isinstance(dist.group.WORLD._get_backend(torch.device("cuda")), dist.ProcessGroupNCCL)
mean = torch.tensor([rank + 1], device="cuda")
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
assert mean.item() == 1, mean
uneven = [torch.empty(each + 1, device="cuda") for each in range(size)]
dist.all_gather(uneven, torch.full((rank + 1,), float(rank), device="cuda"))
assert [part.tolist() for part in uneven] == [[0.0], [1.0, 1.0]], uneven
matrix = torch.empty(2, 3, device="cuda")
dist.all_gather_into_tensor(matrix, torch.full((1, 3), float(rank), device="cuda"))
assert matrix.tolist() == [[0.0] * 3, [1.0] * 3] and matrix.device.index == rank
scaled = torch.full((2,), 4.0, device="cuda")
dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
assert scaled.tolist() == [4.0, 4.0], scaled
sent = [torch.full((each + 1,), rank * 10.0 + each, device="cuda") for each in range(size)]
received = [torch.empty(rank + 1, device="cuda") for _ in range(size)]
dist.all_to_all(received, sent)
assert [part.tolist() for part in received] == [[rank + 0.0] * (rank + 1), [rank + 10.0] * (rank + 1)]
first = torch.full((2,), rank + 1.0, device="cuda")
assert functional.all_reduce(first, "avg", dist.group.WORLD).tolist() == [1.5, 1.5]
assert functional.all_gather_tensor(first, 0, dist.group.WORLD).device.index == rank
both = dist.new_group(backend="cpu:gloo,cuda:nccl")
assert functional.all_gather_tensor(first, 0, both).device.index == rank
on_host = torch.ones(2)
dist.all_reduce(on_host, group=both)
assert on_host.tolist() == [2.0, 2.0]
part = dist.split_group(split_ranks=[[1], [0]])
assert dist.get_world_size(part) == 1 and dist.get_backend(part) == "nccl"
for call, words in [
    (lambda: functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD), "device type cpu"),
    (lambda: dist.all_gather([torch.ones(1)] * 2, torch.ones(1)), "device type cpu"),
    (lambda: dist.group.WORLD.allreduce([torch.ones(1)]), "device type cpu"),
    (lambda: dist.all_reduce(mean > 0, op=dist.ReduceOp.AVG), "Cannot use ReduceOp.AVG with boolean inputs"),
    (lambda: dist.all_reduce(mean.to_sparse()), "NCCL does not support all_reduce with sparse tensors"),
    (lambda: dist.recv(mean), "does not support recvAnysource"),
    (lambda: dist.all_gather_into_tensor(matrix, mean.float()), "output tensor size must be equal to"),
    (lambda: dist.reduce_scatter_tensor(mean.float(), matrix), "same size as output size times world size"),
    (lambda: dist.all_to_all_single(first, torch.ones(3).cuda()), "does not divide equally"),
    (lambda: symmetric_memory.empty(4, device="cuda"), "symmetric memory: each rank's"),
    (lambda: dist.group.WORLD._get_backend(mean.device).mem_allocator, "NCCL's memory pools"),
    (lambda: load("ours", ["kernel.cu"]), "CUDA extension ours: a virtual GPU does not run"),
    (lambda: attend(mean), "context parallel"),
    (lambda: dist.all_reduce(torch.ones(1, device=1 - rank)), "not on device passed to init_process_group"),
    (lambda: dist.all_reduce(torch.ones(1)), "No backend type associated with device type cpu"),
    (lambda: dist.all_reduce(torch.ones(2, 3, device="cuda").t()), "Tensors must be contiguous"),
    (lambda: dist.all_reduce(mean, op=dist.ReduceOp.BAND), "Cannot use"),
    (lambda: dist.all_reduce(mean.short()), "not supported for NCCL"),
]:
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("done", rank, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_collectives_behave_as_under_nccl(tmp_path):
    start = _START.replace('"nccl"', '"nccl", device_id=torch.device("cuda", int(os.environ["RANK"]))')
    options = ("--report", "report.json")
    result = run(tmp_path, start + _COLLECTIVES, *options)
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    names = {entry["name"]: entry["count"] for entry in report["ranks"][0]["collectives"]}
    assert names["all_reduce"] == 4, names  # three of dist, one functional
    assert sorted(result.stdout.splitlines()) == ["[1] done 1", "done 0"]
    assert "Ran on 2 ranks: train.py" in result.stderr


@pytest.mark.parametrize(
    ("program", "words"),
    mostly_slow(
        [
            (
                "t = torch.ones(3, device='cuda')\nfor _ in range(3 - rank):\n    dist.all_reduce(t)\n",
                "rank 0 waits for rank 1, which has ended",
            ),
            (
                "t = torch.ones(3, device='cuda')\ndist.all_reduce(t) if rank else dist.broadcast(t, 0)",
                "The ranks are not in the same collective",
            ),
            ("dist.send(torch.ones(3, device='cuda'), 1 - rank)", "The ranks wait for each other"),
            ("dist.all_reduce(torch.ones(3, device='cuda:0'))\n", "Duplicate GPU detected : rank"),
            (
                "if rank:\n    raise ValueError('no such file')\ndist.all_reduce(torch.ones(3).cuda())\n",
                "rank 1 failed: ValueError: no such file at train.py:8; all ranks were stopped",
            ),
            (
                "t = torch.ones(3 - rank).cuda()\ndist.all_gather([torch.empty_like(t) for _ in 'ab'], t)",
                "The ranks are not in the same collective (other sizes)",
            ),
            ("g = dist.new_group([rank])\ndist.barrier()", "rank 1: new_group #1 of ranks 1 at train.py:7"),
            (
                "made = [dist.new_group() for _ in 'ab']\nfor i in 0, 1:\n    dist.barrier(made[i ^ rank])",
                "The ranks wait for each other; NCCL would hang",
            ),
            (
                "for g in [[0]][rank:] + [[0, 1]]:\n    dist.new_group(g, use_local_synchronization=True)",
                "(another number of groups before)",
            ),
            ("dist.barrier(device_ids=[0])", "Duplicate GPU detected : rank"),
            ("dist.all_reduce(torch.ones(3))", "NCCL takes no tensors of the host: use .cuda()"),
        ],
        10,
    ),
)
def test_what_keeps_ranks_from_going_on_is_named(tmp_path, program, words):
    result = run(tmp_path, _START + program)
    assert result.returncode == 1
    assert words in result.stderr
    assert result.stderr.count("train.py:") >= 1


_DATA = """
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(16, 4), torch.arange(16) % 3)
sampler = DistributedSampler(data)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).cuda()
ddp = DistributedDataParallel(net, device_ids=[rank])

def average(parameters, is_of_gradients=True):
    for each in parameters:
        dist.all_reduce(each.grad if is_of_gradients else each.data, op=dist.ReduceOp.AVG)

def train(loader, call=ddp, model=ddp, sampler=None, reduce=None, cut=False):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for rows, targets in loader:
            optimizer.zero_grad()
            targets = targets.chunk(size)[rank] if cut else targets
            F.cross_entropy(call(rows.cuda()), targets.cuda()).backward()
            if reduce is not None:
                reduce(model.parameters())
            optimizer.step()
"""
_UNEVEN = """
targets = torch.tensor([[1, -100, -100], [0, 1, 2]])[rank].cuda()
for step in range(2):
    rows = torch.randn(2, 3, 4)[rank].cuda()
"""
_SILENT = {
    "no sampler": ("train(DataLoader(data, 4))", "Each of 2 ranks drew all 16 samples: an epoch is 2 epochs"),
    "no set_epoch": (
        "train(DataLoader(data, 4, sampler=sampler))",
        "Epochs 1 and 2 drew the same order on every rank",
    ),
    "bypassed": (
        "train(DataLoader(data, 4, sampler=sampler), call=ddp.module, sampler=sampler)",
        "No gradient was averaged; the parameters differ between ranks after step 1",
    ),
    "made after wrapping": (
        """
ddp.module.append(nn.Linear(3, 3).cuda())
torch.manual_seed(rank)
nn.init.normal_(ddp.module[-1].weight)
train(DataLoader(data, 4, sampler=sampler), sampler=sampler)""",
        "differ between ranks before step 1",
    ),
    "an optimizer made before FSDP": (
        """
net = nn.Linear(4, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
fully_shard(net)
for epoch in range(2):
    net(torch.full((1, 4), rank + 1.0).cuda()).sum().backward()
    optimizer.step()""",
        "No step changes the model under fully_shard",
    ),
    "a group that a rank does not make": (
        "if rank == 0:\n    dist.new_group([0])",
        "Rank 1 did not call new_group #1, as others did",
    ),
    "one file": ("torch.save(net.state_dict(), 'm.pt')", "2 ranks wrote m.pt"),
    "batch norm": (
        """
norm = DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).cuda())
train(DataLoader(data, 4, sampler=sampler), norm, norm, sampler)""",
        "BatchNorm `1` is not synced",
    ),
    "by hand, other seeds": (
        """
torch.manual_seed(rank)
net = nn.Linear(4, 3).cuda()
train(DataLoader(data, 4, sampler=sampler), net, net, sampler, average)""",
        "The parameters differ between ranks from the start",
    ),
    "by hand, a gradient forgotten": (
        """
net = nn.Linear(4, 3).cuda()
weights = lambda parameters: average([net.weight])
train(DataLoader(data, 4, sampler=sampler), net, net, sampler, weights)""",
        "The parameters differ between ranks after step 1",
    ),
    "not wrapped": (
        """
torch.manual_seed(rank)
net = nn.Linear(4, 3).cuda()
train(DataLoader(data, 4, sampler=sampler), net, net, sampler)
dist.all_reduce(torch.ones(1).cuda())""",
        "No gradient was averaged; the parameters differ between ranks from the start",
    ),
    "means": (_UNEVEN + "    F.cross_entropy(ddp(rows), targets).backward()", "weighs 3 times as much"),
}
_RIGHT = {
    "read when the store says so": """
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    torch.save(net.state_dict(), 'm.pt')
    store.set('saved', '1')
store.wait(['saved'])
net.load_state_dict(torch.load('m.pt', map_location='cuda'))""",
    "by hand": """
net = nn.Linear(4, 3).cuda()
train(DataLoader(data, 4, sampler=sampler), net, net, sampler, average)""",
    "an ensemble": """
torch.manual_seed(rank)
net = nn.Linear(4, 3).cuda()
train(DataLoader(data, 4, shuffle=True), net, net)""",
    "parameters averaged": """
net = nn.Linear(4, 3).cuda()
share = lambda parameters: average(parameters, False)
train(DataLoader(data, 4, sampler=sampler), net, net, sampler, share)""",
    "a model that rank 0 alone trains first": """
if rank == 0:
    net = nn.Linear(4, 3).cuda()
    train(DataLoader(data, 16), net, net)
torch.manual_seed(1)
net = nn.Linear(4, 3).cuda()
train(DataLoader(data, 4, sampler=sampler), net, net, sampler, average)""",
    "a loss that rank 0 alone has": """
if rank == 0:
    F.cross_entropy(nn.Linear(4, 3)(data.tensors[0]), data.tensors[1]).backward()
train(DataLoader(data, 4, sampler=sampler), sampler=sampler)""",
    "experts of each rank, which DistributedDataParallel ignores": """
torch.manual_seed(rank)
net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3)).cuda()
DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ['1.weight', '1.bias'])
ddp = DistributedDataParallel(net, device_ids=[rank])
train(DataLoader(data, 4, sampler=sampler), ddp, ddp, sampler)""",
    "rows of each rank beside a time that all share": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, time, rows):
        return self.layer(rows) * time

net = DistributedDataParallel(Net().cuda())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
draw = torch.Generator().manual_seed(rank)
for step in range(3):
    net(torch.tensor([step]).cuda(), torch.randn(2, 4, generator=draw).cuda()).sum().backward()
    optimizer.step()""",
    "models one after another, each rank's in other memory": """
kept = []
for turn in range(20):
    net = nn.Linear(4, 3).cuda()
    for each in net.parameters():
        dist.broadcast(each.data, 0)
    train(DataLoader(data, 8, sampler=sampler), net, net, sampler, average)
    if turn % 3 == rank:
        kept.append(net)""",
    "a batch cut": "train(DataLoader(data, 4), lambda rows: ddp(rows.chunk(size)[rank]), cut=True)",
    "sampler": """
train(DataLoader(data, 4, sampler=sampler, num_workers=1), sampler=sampler)
if rank == 0:
    torch.save(net.state_dict(), 'm.pt')
    for rows, _ in DataLoader(data):
        ddp.module(rows.cuda())""",
    "two loaders of a line": """
parts = data, TensorDataset(*data.tensors)
for loader in [DataLoader(part, 2, sampler=DistributedSampler(part)) for part in parts]:
    for rows, targets in loader:
        F.cross_entropy(ddp(rows.cuda()), targets.cuda()).backward()""",
    "shards": "train(DataLoader(Subset(data, range(rank, 16, size)), 4, shuffle=True))",
    "sliced": """
mine = TensorDataset(*[each[rank::size] for each in data.tensors])
train(DataLoader(mine, 4, shuffle=True))""",
    "global mean": _UNEVEN
    + "    number = (targets >= 0).sum().float()\n    own = number.clone()\n    dist.all_reduce(number)\n"
    "    (F.cross_entropy(ddp(rows), targets) * own * size / number).backward()",
}


_ONE_BY_ONE = """
import runpy
for number in range({}):
    runpy.run_path(f"program{{number}}.py")
"""


def mistakes_of(folder, *programs):
    """The mistakes that the report has of programs, which the ranks run one by one."""
    begun = _START.replace('dist.init_process_group("nccl")\n', "")
    for number, program in enumerate(programs):
        (folder / f"program{number}.py").write_text(begun + _DATA + program, "utf-8")
    result = run(folder, _START + _ONE_BY_ONE.format(len(programs)), "--report", "report.json")
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "report.json").read_text("utf-8"))["mistakes"]


_NOT_WRAPPED = ["not wrapped"]  # beside models that ranks train together it looks like each rank's own


@pytest.mark.slow
@pytest.mark.parametrize("names", [[name for name in _SILENT if name not in _NOT_WRAPPED], _NOT_WRAPPED])
def test_silent_mistakes_are_named_with_their_line(tmp_path, names):
    mistakes = mistakes_of(tmp_path, *(_SILENT[name][0] for name in names))
    by_program = {each["at"].partition(":")[0]: each for each in mistakes}
    assert len(mistakes) == len(by_program) == len(names), mistakes
    for number, name in enumerate(names):
        mistake = by_program[f"program{number}.py"]
        assert _SILENT[name][1] in mistake["text"]
        assert mistake["kind"] == ("note" if name == "batch norm" else "mistake")  # many programs mean it


@pytest.mark.slow
def test_the_advice_fits_the_sampler_that_draws_alike_on_all_ranks(tmp_path):
    program = """
from torch.utils.data import WeightedRandomSampler
alike = torch.Generator().manual_seed(0)
train(DataLoader(data, 4, shuffle=True, generator=alike))
train(DataLoader(data, 4, sampler=WeightedRandomSampler([1.0] * 16, 8, generator=alike)))
train(DataLoader(data, batch_sampler=[[0, 1, 2, 3], [4, 5, 6, 7]]))
train(DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0, shuffle=False)))
"""
    mistakes = [each for each in mistakes_of(tmp_path, program) if each["kind"] == "mistake"]
    assert [each["advice"].partition(" draws alike on all ranks")[0] for each in mistakes] == [
        "give the DataLoader a DistributedSampler",
        "WeightedRandomSampler",
        "list",
        "give the DistributedSampler the number of each rank: rank=dist.get_rank()",
    ]


_ALONE = {"an ensemble", "a model that rank 0 alone trains first"}
"""Beside models that ranks train together, these look like a model that was forgotten."""


@pytest.mark.slow
@pytest.mark.parametrize("names", [_RIGHT.keys() - _ALONE, *([name] for name in sorted(_ALONE))])
def test_right_programs_have_no_mistakes(tmp_path, names):
    assert mistakes_of(tmp_path, *map(_RIGHT.get, names)) == []


_COUNTED = """
maker, judge = (nn.parallel.DistributedDataParallel(nn.Linear(2, 2).cuda()) for _ in range(2))
for _ in range(3):
    made = maker(torch.ones(1, 2).cuda())
    judge(made.detach()).sum().backward()
    judge(made).sum().backward()

class ReturnsAParameter(nn.Linear):
    def forward(self, x):
        return super().forward(x), self.weight

model = nn.parallel.DistributedDataParallel(ReturnsAParameter(2, 2).cuda())
for _ in range(3):
    made, weight = model(torch.ones(1, 2).cuda())
    (made.sum() + weight.sum()).backward()
assert not weight._backward_hooks

from torch.distributed.optim import ZeroRedundancyOptimizer
model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2).cuda())
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)  # its steps call another's
for _ in range(3):
    model(torch.ones(1, 2).cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_calls_backward_passes_and_steps_count_for_their_model(tmp_path):
    result = run(tmp_path, _START + _COUNTED, "--report", "report.json")
    assert result.returncode == 0, result.stderr
    for rank in json.loads((tmp_path / "report.json").read_text("utf-8"))["ranks"]:
        found = [(each["forwards"], each["backwards"], each["steps"]) for each in rank["models"]]
        assert found == [(3, 3, 0), (6, 6, 0), (3, 3, 0), (3, 3, 3)]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_ranks_end_with_their_launcher_however_it_ends(tmp_path):
    loop = (
        "from pathlib import Path\nimport os, time\nPath(os.environ['RANK']).write_text(str(os.getpid()))\n"
    )
    (tmp_path / "train.py").write_text(loop + "while True:\n    time.sleep(1)\n", "utf-8")
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    files = [tmp_path / str(rank) for rank in range(2)]
    wait_for(lambda: all(file.exists() and file.read_text("utf-8") for file in files))
    process.kill()
    process.wait()
    wait_for(lambda: not any(_is_alive(int(file.read_text("utf-8"))) for file in files))


def _is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
