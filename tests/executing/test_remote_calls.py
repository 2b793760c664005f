"""torch.distributed.rpc under `dpdemo exec`: parameter servers, and what may not travel between workers."""

import subprocess
import sys

import pytest

_PARAMETER_SERVER = """
import os, torch
import torch.distributed.autograd as dist_autograd
import torch.multiprocessing as mp
from torch import nn
from torch.distributed import rpc
from torch.distributed.nn import RemoteModule
from torch.distributed.optim import DistributedOptimizer

class Body(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8))

def state(rref):
    return {name: (str(value.device), value.cpu()) for name, value in rref.local_value().state_dict().items()}

def gpus_of_gradients(context):
    return {str(gradient.device) for gradient in dist_autograd.get_gradients(context).values()}

def on_gpu(x):
    return x.cuda()

def sends(function, value):
    try:
        rpc.rpc_sync("server", function, args=(value,))
    except RuntimeError as error:
        return "only supports CPU tensors" not in str(error)
    return True

def main(rank):
    options = rpc.TensorPipeRpcBackendOptions(init_method="file://" + os.path.abspath("store"))
    rpc.init_rpc(("trainer", "server")[rank], rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        train()
        assert not sends(torch.neg, torch.ones(2, device="cuda"))
        assert not sends(on_gpu, torch.ones(2, device="cuda"))
        assert not sends(on_gpu, torch.ones(2))  # its answer lies on a GPU
    rpc.shutdown()

def train():
    expected, head, alike = Body(), nn.Linear(8, 2), nn.Linear(8, 2)
    alike.load_state_dict(head.state_dict())
    alike.cuda()
    remote = RemoteModule("server/cuda:1", Body)
    on_one = torch.optim.SGD([*expected.parameters(), *head.parameters()], lr=0.1)
    on_both = DistributedOptimizer(
        torch.optim.SGD, [*remote.remote_parameters(), *map(rpc.RRef, alike.parameters())], lr=0.1
    )
    for _ in range(2):
        x, y = torch.randn(6, 4), torch.randn(6, 2)
        on_one.zero_grad()
        nn.functional.mse_loss(head(expected(x)), y).backward()
        on_one.step()
        with dist_autograd.context() as context:
            rows = torch.stack(remote(x)).cuda()
            dist_autograd.backward(context, [nn.functional.mse_loss(alike(rows), y.cuda())])
            assert rpc.rpc_sync("server", gpus_of_gradients, args=(context,)) == {"cuda:1"}
            on_both.step(context)
    found = rpc.rpc_sync("server", state, args=(remote.get_module_rref(),))
    for name, wanted in expected.state_dict().items():
        device, value = found[name]
        assert device == "cuda:1", device
        torch.testing.assert_close(value, wanted)
    for given, wanted in zip(alike.parameters(), head.parameters(), strict=True):
        assert given.device == torch.device("cuda:0")
        torch.testing.assert_close(given.cpu(), wanted)
    print("as in one process")

if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
"""


@pytest.mark.slow
def test_a_parameter_server_trains_on_its_own_gpu_and_only_cpu_tensors_travel(tmp_path):
    (tmp_path / "server.py").write_text(_PARAMETER_SERVER)
    command = [sys.executable, "-m", "dpdemo", "exec", "--gpus", "2", "server.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "as in one process" in done.stdout
