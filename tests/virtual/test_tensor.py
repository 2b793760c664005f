"""What a tensor on a virtual GPU says of itself, and where it goes."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")
ONE = torch.device("cuda:1")


@pytest.mark.parametrize("device", ["cuda:1", torch.device("cuda", 1), 1])
def test_a_tensor_goes_to_a_device_by_any_of_its_names(device):
    tensor = torch.ones(3)
    for moved in (
        tensor.to(device),
        tensor.cuda(device),
        torch.ones(3, device=device),
        tensor.to(device=device),
    ):
        assert moved.device == ONE
        assert moved.is_cuda
        assert not moved.is_cpu
        assert moved.get_device() == 1
    assert tensor.device.type == "cpu"
    assert tensor.get_device() == -1


def test_cuda_without_a_number_is_the_current_device():
    with torch.cuda.device(2):
        assert torch.ones(1).cuda().get_device() == 2
        assert torch.ones(1).to("cuda").get_device() == 2
        assert torch.ones(1, device="cuda").get_device() == 2
    assert torch.ones(1, device="cuda").get_device() == 0


def test_going_where_it_is_returns_the_tensor_itself_and_copy_does_not():
    tensor = torch.ones(3, device="cuda:1")
    assert tensor.to("cuda:1") is tensor
    assert tensor.cuda(1) is tensor
    copied = tensor.to("cuda:1", copy=True)
    assert copied is not tensor
    assert copied.device == ONE
    assert copied.data_ptr() != tensor.data_ptr()
    assert torch.ones(2).cpu().device.type == "cpu"


def test_to_reads_dtypes_and_other_tensors_and_memory_formats():
    tensor = torch.ones(2, 3, 4, 4)
    assert tensor.to("cuda:1", torch.float64).dtype is torch.float64
    assert tensor.to(torch.float16).dtype is torch.float16
    assert tensor.to("cuda:1", torch.int32, True).dtype is torch.int32
    like = tensor.to(torch.zeros(1, device="cuda:1", dtype=torch.float64))
    assert (like.device, like.dtype) == (ONE, torch.float64)
    assert tensor.to(other=torch.zeros(1, device="cuda:1")).device == ONE
    last = tensor.to("cuda:1", memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert last.to("cuda:2").is_contiguous(memory_format=torch.channels_last)
    assert torch.ones(1, device="cuda:2").to(None, torch.float64).get_device() == 2


def test_views_aliases_and_results_are_where_the_tensor_is():
    tensor = torch.ones(4, 4, device="cuda:1")
    views = (tensor[1:], tensor.t(), tensor.view(-1), tensor.data, tensor.detach(), tensor.expand(2, 4, 4))
    assert all(view.device == ONE for view in views)
    assert (tensor + 1).device == ONE
    assert tensor.add_(1) is tensor
    assert torch.empty_like(tensor).device == ONE
    assert tensor.new_zeros(3).device == ONE
    assert tensor.new_tensor([1.0]).device == ONE
    assert tensor.new(2, 3).device == ONE


def test_a_cpu_tensor_can_be_asked_for_beside_one_on_a_gpu():
    tensor = torch.ones(3, device="cuda:1")
    made = (
        torch.zeros_like(tensor, device="cpu"),
        tensor.new_zeros(3, device="cpu"),
        torch.rand_like(tensor, device="cpu"),
    )
    assert all(each.device.type == "cpu" for each in made)
    assert torch.as_tensor(tensor, device="cpu").device.type == "cpu"
    assert torch.zeros_like(tensor, device="cuda:2").get_device() == 2


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.tensor([1.0, 2.0], device=device),
        lambda device: torch.as_tensor([1.0, 2.0], device=device),
        lambda device: torch.asarray([1.0, 2.0], device=device),
        lambda device: torch.arange(3, device=device),
        lambda device: torch.randperm(3, device=device),
        lambda device: torch.fft.fftfreq(4, device=device),
        lambda device: torch.hann_window(4, device=device),
        lambda device: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device=device),
        lambda device: torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 2), device=device),
        lambda device: torch.eye(2, device=device, requires_grad=True),
        lambda device: torch.tensor([1.0], device=device, requires_grad=True),
    ],
)
@pytest.mark.parametrize("device", ["cuda:3", 3])
def test_factories_make_tensors_on_a_gpu(make, device):
    made = make(device)
    assert made.get_device() == 3
    assert made.is_leaf


def test_the_device_context_and_the_default_device_reach_every_factory():
    with torch.device("cuda:2"):
        made = (
            torch.zeros(1),
            torch.tensor([1.0]),
            torch.rand(1),
            nn.Linear(2, 2).weight,
            torch.as_tensor([1]),
        )
        assert [each.get_device() for each in made] == [2] * 5
    torch.set_default_device("cuda:1")
    try:
        assert torch.tensor(1.0).get_device() == 1
    finally:
        torch.set_default_device(None)
    assert torch.tensor(1.0).device.type == "cpu"


def test_repr_and_type_name_the_device():
    tensor = torch.ones(1, device="cuda:1")
    assert repr(tensor) == "tensor([1.], device='cuda:1')"
    assert tensor.type() == "torch.cuda.FloatTensor"
    assert torch.ones(1).type() == "torch.FloatTensor"
    assert tensor.type("torch.DoubleTensor").device.type == "cpu"
    assert tensor.type(torch.float64).device == ONE
    assert isinstance(tensor, torch.cuda.FloatTensor)
    assert not isinstance(torch.ones(1), torch.cuda.FloatTensor)
    assert torch.cuda.LongTensor([1, 2]).type() == "torch.cuda.LongTensor"


def test_a_move_is_one_node_of_the_graph_under_its_own_name():
    moved = torch.ones(1, requires_grad=True).cuda()
    assert repr(moved) == "tensor([1.], device='cuda:0', grad_fn=<ToCopyBackward0>)"


@pytest.mark.parametrize("convert", [lambda t: t.numpy(), np.asarray])
def test_numpy_of_a_gpu_tensor_fails_in_cudas_words(convert):
    message = (
        "can't convert cuda:1 device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        convert(torch.ones(2, device="cuda:1"))


def test_numpy_works_after_cpu_and_with_force():
    tensor = torch.ones(2, device="cuda:1", requires_grad=True)
    assert tensor.detach().cpu().numpy().tolist() == [1, 1]
    assert tensor.numpy(force=True).tolist() == [1, 1]
    assert tensor.tolist() == [1, 1]
    assert tensor.sum().item() == 2


def test_a_device_that_is_not_there_fails_in_cudas_words():
    for use in (
        lambda: torch.zeros(1, device="cuda:4"),
        lambda: torch.zeros(1).to("cuda:4"),
        lambda: torch.zeros(1).cuda(4),
        lambda: torch.cuda.set_device(4),
        lambda: nn.Linear(1, 1).to("cuda:4"),
        lambda: torch.tensor(1, device="cuda:4"),
        lambda: torch.randn(1, device="cuda:4"),
    ):
        with pytest.raises(torch.AcceleratorError, match=r"^CUDA error: invalid device ordinal"):
            use()
    with pytest.raises(RuntimeError, match="Invalid device, must be cuda device"):
        torch.zeros(1).cuda("cpu")


def test_pinned_memory_is_a_flag_of_cpu_tensors():
    tensor = torch.ones(3)
    pinned = tensor.pin_memory()
    assert (tensor.is_pinned(), pinned.is_pinned(), pinned[1:].is_pinned()) == (False, True, True)
    assert pinned.pin_memory() is pinned
    assert torch.zeros(2, pin_memory=True).is_pinned()
    assert pinned.cuda(non_blocking=True).device == torch.device("cuda:0")
    with pytest.raises(
        RuntimeError, match=r"cannot pin 'torch\.cuda\.FloatTensor' only dense CPU tensors can be pinned"
    ):
        tensor.cuda().pin_memory()


@pytest.mark.parametrize("name", ["ones", "empty", "rand"])
def test_no_memory_of_a_gpu_is_pinned(name):
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        getattr(torch, name)(2, device="cuda", pin_memory=True)


def test_methods_that_take_a_python_function_are_the_cpus_alone() -> None:
    tensor = torch.ones(2, device="cuda")
    with pytest.raises(TypeError, match="apply_ is only implemented on CPU tensors"):
        tensor.apply_(lambda item: item + 1)
    with pytest.raises(TypeError, match="map_ is only implemented on CPU tensors"):
        tensor.map_(tensor, lambda number, _: number)  # type: ignore[attr-defined]
    assert torch.ones(2).apply_(lambda item: item + 1).tolist() == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("name", ["tensor", "as_tensor", "asarray"])
def test_a_list_of_numbers_from_a_gpu_becomes_a_cpu_tensor(name):
    make = getattr(torch, name)
    losses = torch.ones(2, device="cuda:1").unbind()
    assert make(losses).device == torch.device("cpu")
    assert make(losses, device="cuda:1").device == torch.device("cuda:1")
    assert make(losses[0]).device == torch.device("cuda:1")


def test_modules_keep_their_parameters_when_they_move():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    parameters = list(model.parameters())
    before = torch.optim.SGD(model.parameters(), lr=0.1)
    for moved in (model.cuda(1), model.to(1), model.to("cuda:1"), model.to(torch.device("cuda", 1))):
        assert moved is model
    assert all(old is new for old, new in zip(parameters, model.parameters(), strict=True))
    assert {value.get_device() for value in model.state_dict().values()} == {1}
    model(torch.rand(4, 3, device="cuda:1")).pow(3).sum().backward()
    weight = model[0].weight.detach().clone()
    before.step()
    assert not torch.equal(weight, model[0].weight)
    assert model.cpu()[0].weight.grad.device.type == "cpu"
    assert model.to(torch.zeros(1, device="cuda:2"))[0].weight.get_device() == 2


def test_a_device_by_number_can_be_pickled_and_is_a_device():
    device = torch.device(1)
    assert device == torch.device("cuda:1")
    assert isinstance(device, torch.device)
    assert pickle.loads(pickle.dumps(device)) == device  # noqa: S301
    assert copy.deepcopy(device) == device
    assert type(device) == torch.device  # noqa: E721 - as some programs write it


def test_tensor_subclasses_see_their_own_moves():
    class Mine(torch.Tensor):
        pass

    moved = torch.ones(2).as_subclass(Mine).cuda(1)
    assert type(moved) is Mine
    assert moved.device == ONE
    assert type(moved.cpu()) is Mine


def test_setting_a_gradient_from_another_device_fails_in_pytorchs_words():
    tensor = torch.ones(2, device="cuda:1", requires_grad=True)
    with pytest.raises(
        RuntimeError, match="attempting to assign a gradient with device type 'cpu' to a tensor"
    ):
        tensor.grad = torch.ones(2)
    tensor.grad = torch.ones(2, device="cuda:1")
    assert tensor.grad.device == ONE


def test_a_lazy_module_that_moves_before_its_first_call_gets_its_buffers_there():
    """Its buffers have a class of their own until then, which a move must keep."""
    plain = torch.nn.Sequential(torch.nn.LazyConv2d(3, 2), torch.nn.LazyBatchNorm2d())
    module = plain.to("cuda:2")
    assert type(module[1].running_mean) is torch.nn.parameter.UninitializedBuffer
    data = torch.arange(32.0).reshape(2, 1, 4, 4)
    output = torch.nn.DataParallel(module, [2])(data)
    assert {str(each.device) for each in (*module.parameters(), *module.buffers(), output)} == {"cuda:2"}
    assert type(module[1].running_mean) is torch.Tensor
    expected = torch.nn.functional.conv2d(data, module[0].weight.cpu(), module[0].bias.cpu()).mean((0, 2, 3))
    assert torch.allclose(module[1].running_mean.cpu(), expected * 0.1)


def test_a_gradient_on_the_cpu_stays_there_while_its_parameter_is_on_a_gpu():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = offloaded = torch.zeros(2)
    parameter.data = parameter.data.cuda()
    assert parameter.grad.device.type == "cpu"  # as FSDP with CPUOffload keeps it
    assert offloaded.device.type == "cpu"
