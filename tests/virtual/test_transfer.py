"""Moving between devices: the bytes are counted, and gradients travel back."""

import pytest
import torch

KIB = 1024


def test_each_kind_of_move_is_counted_in_bytes_and_times(gpus):
    host = torch.ones(KIB // 4)
    on_0 = host.cuda()
    on_1 = on_0.to("cuda:1")
    on_1.cpu()
    on_1.copy_(on_0)
    on_1.to("cuda:1")
    moved = gpus.bytes_moved
    assert (moved.host_to_device, moved.device_to_device, moved.device_to_host) == (KIB, 2 * KIB, KIB)
    assert (moved.num_host_to_device, moved.num_device_to_device, moved.num_device_to_host) == (1, 2, 1)
    assert gpus.bytes_moved_between == {(None, 0): KIB, (0, 1): 2 * KIB, (1, None): KIB}


@pytest.mark.usefixtures("gpus")
def test_gradients_travel_back_through_every_move():
    leaf = torch.ones(3, dtype=torch.float64, requires_grad=True)
    there = leaf.cuda(1)
    (there.to("cuda:2", torch.float32).cpu() * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.device.type == "cpu"
    assert leaf.grad.dtype is torch.float64
    assert leaf.grad.tolist() == [1, 2, 3]


@pytest.mark.usefixtures("gpus")
def test_gradients_of_moves_can_be_differentiated_again():
    leaf = torch.tensor([2.0, 3.0], requires_grad=True)
    cubes = leaf.cuda(1).pow(3).to("cuda:2")
    (first,) = torch.autograd.grad(cubes.sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.cuda(3).sum(), leaf)
    assert first.tolist() == [12, 27]
    assert second.tolist() == [12, 18]
    assert torch.autograd.gradcheck(
        lambda x: x.cuda(1).sin().cpu(), torch.rand(3, dtype=torch.float64, requires_grad=True)
    )


@pytest.mark.filterwarnings("ignore:`torch.jit")  # PyTorch's own, when it loads its rules
@pytest.mark.usefixtures("gpus")
def test_forward_mode_gradients_travel_along():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.tensor([1.0, 2.0]))
        tangent = torch.autograd.forward_ad.unpack_dual(dual.cuda(1) * 3).tangent
    assert tangent.tolist() == [3, 6]
    assert tangent.device == torch.device("cuda:1")


@pytest.mark.usefixtures("gpus")
def test_copy_and_assignment_across_devices_keep_each_tensor_where_it_is():
    host, there = torch.zeros(3), torch.ones(3, device="cuda:1", requires_grad=True)
    host[1:] = there[1:]
    assert host.device.type == "cpu"
    assert host.tolist() == [0, 1, 1]
    target = torch.zeros(3, device="cuda:2")
    target[0] = there[0] * 2
    target[1:].copy_(there[1:])
    target.sum().backward()
    assert there.grad is not None
    assert there.grad.tolist() == [2, 1, 1]
    assert there.grad.get_device() == 1
    assert target.get_device() == 2


@pytest.mark.usefixtures("gpus")
def test_gradients_of_nothing_are_on_their_tensors_device():
    tensor = torch.ones(3, device="cuda:1", requires_grad=True)
    tensor.sign().sum().backward()
    assert tensor.grad is not None
    assert tensor.grad.device == tensor.device
    (gradient,) = torch.autograd.grad(tensor.sign().sum(), tensor)
    assert gradient.device == tensor.device


@pytest.mark.usefixtures("gpus")
def test_a_python_function_gets_its_gradients_and_its_current_device_as_on_a_gpu():
    seen = []

    class TwoOutputs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # noqa: ARG004
            return x * 2, x.to("cuda:2")

        @staticmethod
        def backward(ctx, first, second):  # noqa: ARG004
            seen.extend([first.get_device(), second.get_device(), torch.zeros(1, device="cuda").get_device()])
            return first

    leaf = torch.ones(2, device="cuda:1", requires_grad=True)
    TwoOutputs.apply(leaf)[0].sum().backward()
    assert seen == [1, 2, 1]
    assert torch.cuda.current_device() == 0


def test_a_module_moves_with_its_gradients_and_leaves_what_it_had_behind(gpus):
    model = torch.nn.Linear(4, 2, bias=False)
    model(torch.ones(1, 4)).sum().backward()
    assert model.weight.grad is not None
    alias = model.weight.grad.detach()
    gpus.reset_peaks()
    model.cuda()
    assert model.weight.grad.is_cuda
    assert not alias.is_cuda
    assert gpus.peak_bytes(0) == gpus.live_bytes(0) == 2 * 512
