"""Groups of "nccl" are those of the installed release: from torch 2.15 on, another implementation."""

import sys

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from processes import run
from torch.distributed.device_mesh import DeviceMesh

from dpdemo.virtual.process_groups import HAS_SECOND

IS_SECOND = hasattr(dist.distributed_c10d, "_nccl2_device")
"""Whether "nccl" is the second implementation, as from torch 2.15 on."""

pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.filterwarnings("ignore:.*is deprecated")]
second = pytest.mark.skipif(not IS_SECOND, reason='"nccl" is the first implementation before torch 2.15')


@pytest.fixture
def join(monkeypatch):
    """Return a function that makes the default group of one rank."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def init(backend="nccl", **options):
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **options)
        return dist.group.WORLD

    yield init
    dist.destroy_process_group()


@second
def test_the_second_implementation_is_bound_to_the_local_rank_whatever_set_device_said(join, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "6")
    torch.cuda.set_device(1)
    group = join()
    assert group.bound_device_id == torch.device("cuda", 2)  # of four GPUs
    dist.all_reduce(torch.ones(1, device="cuda:2"))
    words = "ProcessGroupNCCL is bound to device cuda:2 but an operation was issued on cuda:1"
    with pytest.raises(RuntimeError, match=words):
        dist.all_reduce(torch.ones(1, device="cuda:1"))


@second
def test_a_named_device_comes_first(join, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert join(device_id=torch.device("cuda:3")).bound_device_id == torch.device("cuda:3")


@pytest.mark.skipif(not HAS_SECOND, reason="there is one implementation before torch 2.14")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl", "ProcessGroupNCCL2" if IS_SECOND else "ProcessGroupNCCL"),
        ("nccl2", "ProcessGroupNCCL2"),
        ("nccl-lazy", "ProcessGroupNCCLLazy"),
        ("nccl-legacy", "ProcessGroupNCCL"),
    ],
)
def test_each_name_makes_the_releases_own_class(join, name, kind):
    join(name)
    made = dist.get_backend_impl()
    kinds = [dist.ProcessGroupNCCL, dist.ProcessGroupNCCL2, dist.ProcessGroupNCCLLazy]
    assert [each for each in kinds if isinstance(made, each)] == [getattr(dist, kind)]
    assert type(made).__name__ == kind
    assert (dist.get_backend(), made.supports_coalescing) == (name, True)
    tensor = torch.ones(2, device="cuda:0")
    dist.all_reduce(tensor)
    other = dist.new_group([0])
    dist.all_reduce(tensor, group=other)
    assert isinstance(dist.get_backend_impl(other), getattr(dist, kind))


@second
def test_a_gather_into_one_tensor_takes_a_placeholder_elsewhere(join):
    join()
    output = torch.empty(2, dtype=torch.bfloat16, device="cuda:0")
    dist.gather_single(torch.tensor([1, 2], dtype=torch.bfloat16, device="cuda:0"), output)
    assert output.tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="output tensor size must be equal to world_size times"):
        dist.gather_single(torch.ones(2, device="cuda:0"), torch.ones(3, device="cuda:0"))


@second
def test_functional_collectives_multiply_before_the_sum(join):
    group = join()
    tensor = torch.full((2,), 3.0, device="cuda:0")
    result = functional.all_reduce(tensor, dist._make_nccl_premul_sum(0.5), group)
    assert (result + 0).tolist() == [1.5, 1.5]


def test_a_generator_of_a_gpu_answers_for_the_accelerator():
    random = pytest.importorskip("torch.accelerator.random")
    torch.cuda.manual_seed_all(5)
    assert random.initial_seed("cuda:1") == 5
    assert torch.equal(random.get_rng_state(1), torch.cuda.get_rng_state(1))
    assert len(random.get_rng_state_all()) == 4


_ABORTED = """
import torch
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cuda", (2,))
torch.distributed.all_reduce(torch.ones(1, device="cuda"))
mesh.abort()
print("aborted")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(DeviceMesh, "abort"), reason="torch 2.15 has it")
def test_an_aborted_mesh_leaves_no_traceback(tmp_path):
    program = tmp_path / "abort.py"
    program.write_text(_ABORTED)
    done = run([sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", str(program)])
    assert done.stdout.count("aborted") == 2
    assert "Traceback" not in done.stdout + done.stderr
    assert "deprecated" not in done.stdout + done.stderr


def test_collectives_of_ddp_that_are_over_hold_no_tensors(join, gpus):
    join()
    torch.cuda.set_device(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).cuda()
    ddp = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    buffers, parameters = [*net.buffers()], [*net.parameters()]
    for _ in range(2):  # buckets are made again before the second
        ddp(torch.ones(3, 4).cuda()).mean().backward()
    del ddp
    assert gpus.live_bytes(0) == 512 * (len(buffers) + 2 * len(parameters))
