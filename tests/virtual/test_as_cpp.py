"""What C++ asks of a tensor on a real GPU, the emulation asks past the tensor's class and past all modes."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual import UnsupportedOpError, virtual_gpus

_C = torch._C


class Refusing(torch.Tensor):
    """A tensor whose class refuses every function, once it is made."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise TypeError(f"{func} was asked of the class")


def refusing(device):
    return torch.arange(8.0).reshape(4, 2).to(device).as_subclass(Refusing)


BY_CPP = {
    "scatter from the CPU": lambda: _C._scatter(refusing("cpu"), [0, 1], None, 0, None),
    "scatter by sizes": lambda: _C._scatter(refusing("cuda:0"), [0, 1], [1, 3], 0, None),
    "broadcast": lambda: _C._broadcast(refusing("cuda:0"), [1]),
    "broadcast coalesced": lambda: _C._broadcast_coalesced([refusing("cuda:0")], [0, 1], 10000)[1],
    "gather": lambda: [_C._gather([refusing("cuda:0"), refusing("cuda:1")], 0, 0)],
}
OPERATORS = {
    "add": lambda x: x + x,
    "matmul": lambda x: x @ x.t(),
    "cat": lambda x: torch.cat([x, x]),
    "index": lambda x: x[torch.tensor([0, 1])],
    "foreach": lambda x: torch._foreach_add([x], 1.0)[0],
    "dropout": lambda x: torch.dropout(x, 0.5, True),
    "convolution": lambda x: torch.conv1d(x[None], torch.ones(1, 4, 1, device=x.device)),
    "zeros_like": torch.zeros_like,
    "to": lambda x: x.to("cuda:1"),
}


@pytest.mark.parametrize("name", BY_CPP)
@pytest.mark.usefixtures("gpus")
def test_dataparallels_functions_ask_no_class_and_return_plain_tensors(name):
    assert {type(tensor) for tensor in BY_CPP[name]()} == {torch.Tensor}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.usefixtures("gpus")
def test_operators_ask_no_class(name):
    tensor = refusing("cuda:0")
    with torch._C.DisableTorchFunctionSubclass():  # as below a class that passes the call on
        assert OPERATORS[name](tensor).is_cuda


@pytest.mark.usefixtures("gpus")
def test_a_class_sees_what_its_user_asks():
    with pytest.raises(TypeError, match="was asked of the class"):
        _ = refusing("cuda:0").device


@pytest.mark.usefixtures("gpus")
def test_expanded_weights_of_per_sample_gradients_run():
    from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

    model = nn.Linear(3, 2)
    moved = copy.deepcopy(model).cuda()
    batch = torch.randn(4, 3)
    call_for_per_sample_grads(model)(batch).sum().backward()
    call_for_per_sample_grads(moved)(batch.cuda()).sum().backward()
    torch.testing.assert_close(moved.weight.grad_sample.cpu(), model.weight.grad_sample)


class Functions(TorchFunctionMode):
    """Notes the functions that it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func.__name__))
        return func(*args, **(kwargs or {}))


def test_a_function_mode_sees_what_it_sees_without_virtual_gpus():
    def seen(device):
        tensor = torch.ones(4, 2, device=device)
        with Functions() as mode:
            torch.cat([tensor @ tensor.t(), tensor.relu()], 1).sum()
        return mode.seen

    expected = seen("cpu")
    with virtual_gpus(1):
        assert seen("cuda") == expected


class Operators(TorchDispatchMode):
    """Notes the operators that it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode_behaves_alike_before_inside_and_after_a_block():
    from torch._library import simple_registry

    original = simple_registry.find_torch_dispatch_rule
    mode = Operators()

    def run():
        mode.seen.clear()
        with mode:
            torch.ones(2).add(1).sum()
        return list(mode.seen)

    before = run()
    with virtual_gpus(1):
        inside = run()
        assert simple_registry.find_torch_dispatch_rule is original  # C++ keeps it for good
    assert before == inside == run()


@pytest.mark.parametrize("function", [torch.sgn, torch.linalg.slogdet])
@pytest.mark.usefixtures("gpus")
def test_tangents_are_where_their_tensors_are(function):
    with forward_ad.dual_level():
        eye = torch.eye(3, device="cuda:1")
        found = function(forward_ad.make_dual(eye, torch.ones_like(eye)))
        for result in found if isinstance(found, tuple) else (found,):
            assert forward_ad.unpack_dual(result).tangent.device == torch.device("cuda:1")


@pytest.mark.usefixtures("gpus")
def test_the_jacobian_of_a_trace_is_on_the_gpu():
    found = torch.func.jacrev(torch.trace)(torch.ones(3, 3, device="cuda:1"))
    assert found.device == torch.device("cuda:1")
    assert torch.equal(found.cpu(), torch.eye(3))


@pytest.mark.parametrize("name", ["cond", "matrix_rank"])
@pytest.mark.usefixtures("gpus")
def test_results_of_no_elements_are_on_the_gpu(name):
    assert getattr(torch.linalg, name)(torch.empty(0, 3, 3, device="cuda:1")).device == torch.device("cuda:1")


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.usefixtures("gpus")
def test_matrix_rank_is_written_into_out(hermitian):
    out = torch.full((), 77, device="cuda:1")
    torch.linalg.matrix_rank(torch.eye(3, device="cuda:1"), hermitian=hermitian, out=out)
    assert out.item() == 3


def test_names_that_a_program_imported_before_the_block_answer():
    from torch.cuda.graphs import graph_pool_handle, is_current_stream_capturing

    with virtual_gpus(1):
        assert is_current_stream_capturing() is False
        with pytest.raises(UnsupportedOpError, match="graph_pool_handle"):
            graph_pool_handle()
        assert type(torch.cuda.current_stream()).__module__ == "torch.cuda.streams"
        assert isinstance(torch.backends.cudnn.version(), int)


def test_a_resized_storage_is_counted():
    with virtual_gpus(1) as gpus:
        tensor = torch.empty(1024, device="cuda")
        tensor.untyped_storage().resize_(0)
        assert gpus.live_bytes(0) == 0
        tensor.untyped_storage().resize_(4096)
        assert gpus.live_bytes(0) == 4096


FORWARD_MODE = """
import torch
from torch import nn
from dpdemo import check
from dpdemo.virtual import virtual_gpus

class Curved(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        loss = lambda row: nn.functional.nll_loss(self.fc(row)[None].log_softmax(-1), row.new_zeros(1).long())
        return torch.func.vmap(torch.func.hessian(loss))(x)

if {checks}:
    assert check(Curved, torch.randn(6, 3), gpus=2).ok
else:
    with virtual_gpus(2):
        assert nn.DataParallel(Curved().cuda())(torch.randn(6, 3).cuda()).shape == (6, 3, 3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("checks", [False, True])
def test_forward_mode_first_used_on_the_gpus(checks):
    """PyTorch scripts some derivatives at the first use: here while its functions are replaced."""
    subprocess.run([sys.executable, "-c", FORWARD_MODE.format(checks=checks)], check=True)
