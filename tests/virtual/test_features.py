"""Features of PyTorch that reach devices in ways of their own work on virtual GPUs."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from dpdemo.virtual import UnsupportedOpError

pytestmark = pytest.mark.usefixtures("gpus")
ONE = torch.device("cuda:1")


def batch():
    return torch.rand(6, 4, device="cuda:1")


def layer():
    return nn.Linear(4, 3).cuda(1)


def test_data_parallel_works_around_checkpoints():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    model = nn.DataParallel(Checkpointed().cuda())
    model(torch.ones(6, 4)).sum().backward()
    assert model.module.inner.bias.grad.tolist() == [6, 6, 6]


@pytest.mark.parametrize(
    ("compute", "index"),
    [
        (torch.vmap(lambda row: row.sin().sum()), 1),
        (torch.vmap(lambda row: torch.zeros(4, device=row.device) + row), 1),
        (torch.vmap(lambda row: row.to("cuda:2") * 2), 2),
        (torch.func.grad(lambda y: (y.to("cuda:2") ** 2).sum()), 1),
        (torch.func.jacrev(lambda x: x.sin() @ x.T), 1),
        (lambda x: torch.func.functional_call(layer(), dict(layer().named_parameters()), (x,)), 1),
    ],
)
def test_function_transforms_keep_devices(compute, index):
    assert compute(batch()).get_device() == index


def test_inference_mode_takes_composite_operators_apart():
    with torch.inference_mode():
        x = batch()
        results = (
            layer()(x),
            F.scaled_dot_product_attention(x[None], x[None], x[None]),
            x.double(),
            x.half(),
        )
        assert all(result.device == ONE for result in results)
        assert nn.LSTM(4, 3).cuda(1)(x)[0].device == ONE
        assert nn.DataParallel(layer().cuda(0))(x).get_device() == 0
        with pytest.raises(RuntimeError, match="on the same device"):
            layer()(torch.ones(2, 4))


def test_saved_tensors_can_wait_on_the_cpu():
    leaf = batch().requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        result = layer()(leaf).exp()
    result.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.device == ONE


def test_other_dispatch_modes_see_the_same_operators():
    with FlopCounterMode(display=False) as counter:
        layer()(batch())
    assert counter.get_total_flops() == 2 * 6 * 4 * 3


@pytest.mark.filterwarnings("ignore")
def test_sparse_and_nested_tensors_are_where_their_parts_are():
    coo, csr = torch.eye(6, device="cuda:1").to_sparse(), torch.eye(6, device="cuda:1").to_sparse_csr()
    for sparse in (coo, csr):
        assert sparse.device == ONE
        assert (sparse @ batch()).device == ONE
        assert sparse.to("cuda:2").get_device() == 2
        assert sparse.cpu().device.type == "cpu"
    assert coo.coalesce().indices().device == ONE
    rows = [torch.ones(2, device="cuda:1"), torch.ones(3, device="cuda:1")]
    assert torch.nested.nested_tensor(rows).device == ONE
    assert torch.nested.nested_tensor([[1.0], [2.0, 3.0]], device="cuda:1").device == ONE
    assert torch.nested.nested_tensor(rows, layout=torch.jagged).device == ONE


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_modules_run_and_are_replicated():
    assert torch.jit.script(layer())(batch()).device == ONE
    assert nn.DataParallel(torch.jit.script(nn.Linear(4, 2).cuda()))(torch.ones(6, 4)).shape == (6, 2)


def test_lengths_of_a_ctc_loss_may_be_on_the_cpu():
    scores = torch.randn(10, 2, 5, device="cuda:1").log_softmax(2)
    targets = torch.randint(1, 5, (2, 3), device="cuda:1")
    assert F.ctc_loss(scores, targets, torch.tensor([10, 10]), torch.tensor([3, 2])).device == ONE


def test_meta_tensors_stay_apart():
    assert batch().to("meta").device.type == "meta"
    assert torch.empty_like(batch(), device="meta").device.type == "meta"
    assert nn.Linear(2, 2, device="meta").to_empty(device="cuda:1").weight.device == ONE


def test_complex_numbers_and_conjugate_views_work():
    spectrum = torch.fft.fft(batch())
    assert (spectrum.conj() + 1).device == ONE
    assert spectrum.conj().cpu().resolve_conj().device.type == "cpu"
    torch.testing.assert_close(torch.fft.ifft(spectrum).real.cpu(), torch.fft.ifft(spectrum.cpu()).real)


def test_memory_is_not_handed_to_other_libraries_as_if_it_were_the_cpus():
    with pytest.raises(
        UnsupportedOpError, match="to_dlpack: the memory of a virtual GPU cannot be handed out"
    ):
        torch.from_dlpack(torch.ones(1, device="cuda:0"))
    for to_dlpack in (torch.to_dlpack, torch.utils.dlpack.to_dlpack):
        with pytest.raises(UnsupportedOpError, match=r"^to_dlpack: the memory of a virtual GPU"):
            to_dlpack(torch.ones(1, device="cuda:1"))
        assert torch.utils.dlpack.from_dlpack(to_dlpack(torch.ones(1))).tolist() == [1]
    assert torch.ones(1, device="cuda:1").__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLCUDA, 1)
    assert torch.from_dlpack(torch.ones(1)).tolist() == [1]


def test_profilers_marks_do_nothing():
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.mark("here")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("step"):
        assert batch().is_cuda
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        assert (batch() + 1).is_cuda


def test_a_number_inside_nested_vmaps_takes_the_device_of_its_tensor():
    doubled = torch.func.vmap(torch.func.vmap(lambda item: item * 2 + 1))(torch.ones(2, 3, device="cuda:1"))
    assert (doubled.tolist(), doubled.get_device()) == ([[3.0] * 3] * 2, 1)


class Adding(torch.nn.Module):
    def forward(self, x):
        return x + torch.ones(2, device=x.device)


def test_a_traced_module_makes_tensors_where_its_input_is():
    traced = torch.fx.symbolic_trace(Adding())
    result = traced(torch.ones(2, device="cuda:1"))
    assert (result.tolist(), result.get_device()) == ([2.0, 2.0], 1)
