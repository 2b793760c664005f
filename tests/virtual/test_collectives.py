"""Collectives of torch.distributed in a process that is a rank of its own."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import rpc

from dpdemo.virtual import UnsupportedOpError

pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.filterwarnings("ignore:.*is deprecated")]


@pytest.fixture(params=["gloo", "nccl"])
def alone(request):
    """Join a group of one rank."""
    device = torch.device("cuda:1") if request.param == "nccl" else None  # torch 2.15 would take cuda:0
    store = dist.HashStore()
    dist.init_process_group(request.param, store=store, rank=0, world_size=1, device_id=device)
    yield dist.group.WORLD
    dist.destroy_process_group()


_FUNCTIONAL = {
    "all_reduce": lambda rows, group: functional.all_reduce(rows, "sum", group),
    "all_reduce_coalesced": lambda rows, group: functional.all_reduce_coalesced([rows], "sum", group),
    "all_gather": lambda rows, group: functional.all_gather_tensor(rows, 0, group),
    "all_gather_coalesced": lambda rows, group: functional.all_gather_into_tensor_coalesced([rows], group),
    "reduce_scatter": lambda rows, group: functional.reduce_scatter_tensor(rows, "sum", 0, group),
    "reduce_scatter_coalesced": lambda rows, group: functional.reduce_scatter_tensor_coalesced(
        [rows], "sum", [0], group
    ),
    "all_to_all": lambda rows, group: functional.all_to_all_single(rows, None, None, group),
    "broadcast": lambda rows, group: functional.broadcast(rows, 0, group),
    "with autograd": lambda rows, group: functional.all_gather_tensor_autograd(
        rows.clone().requires_grad_(), 0, group
    ),
}


@pytest.mark.parametrize("call", _FUNCTIONAL.values(), ids=_FUNCTIONAL)
def test_functional_collectives_return_their_result_on_the_gpu_of_the_input(alone, call):
    """Also over gloo alone, where C++ makes the result and no operator of NCCL says where it is."""
    rows = torch.arange(6.0, device="cuda:1").view(3, 2)
    result = call(rows, alone)
    result = result[0] if isinstance(result, list) else result
    assert (result.device, (result + rows).tolist()) == (rows.device, (rows + rows).tolist())


def test_functional_collectives_of_the_cpu_stay_on_the_cpu():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert functional.all_gather_tensor(torch.ones(2), 0, dist.group.WORLD).device.type == "cpu"
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not rpc.is_available(), reason="this build has no torch.distributed.rpc")
def test_remote_procedure_calls_are_refused_by_name():
    with pytest.raises(UnsupportedOpError, match=r"^torch\.distributed\.rpc: each rank's virtual GPUs are"):
        rpc.init_rpc("worker", rank=0, world_size=1)
