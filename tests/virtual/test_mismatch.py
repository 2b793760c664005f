"""Operands on two devices: CUDA's errors for those who may not mix, and none for those who may."""

import contextlib
import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual import suspended, virtual_gpus

pytestmark = pytest.mark.usefixtures("gpus")
BEGINNING = "Expected all tensors to be on the same device, but "


def zero(*shape):
    return torch.ones(shape, device="cuda:0")


def one(*shape):
    return torch.ones(shape, device="cuda:1")


def elsewhere(name, there, others, kernel):
    """Errors of CUDA kernels with an operand on another device than the first."""
    method = f"(when checking argument in method wrapper_CUDA_{kernel})"
    text = f"{BEGINNING}got {name} is on {there}, different from other tensors on {others} {method}"
    return f"^{re.escape(text)}$"


def apart(one, other):
    """The error of an iterator over operands that are on two devices."""
    return f"^{re.escape(f'{BEGINNING}found at least two devices, {one} and {other}!')}$"


def test_temporaries_on_the_cpu_are_told_from_tensors_that_pytorch_makes_inside():
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        zero(3) + torch.ones(3)
    with pytest.raises(RuntimeError, match="is on cpu"):
        torch.stack([zero(3), torch.arange(3.0)])
    # `combinations` makes a mask, `quantile` ranks, and a list of numbers an index, all on the CPU as C++
    # sees it.
    assert torch.combinations(zero(4)).is_cuda
    assert torch.quantile(zero(4, 4), 0.3, dim=0).is_cuda
    assert zero(4, 4)[[0, 1]].is_cuda


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_network_with_parts_elsewhere_fails_in_its_own_words(make):
    network, hidden = make(2, 2).cuda(), torch.zeros(1, 1, 2)
    message = (
        "Input and hidden tensors are not at the same device, "
        "found input tensor at cuda:0 and hidden tensor at cpu"
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        network(zero(1, 1, 2), (hidden, hidden) if make is nn.LSTM else hidden)
    with pytest.raises(
        RuntimeError, match=r"^Input and (hidden|parameter) tensors are not at .* and \w+ tensor at cuda:0$"
    ):
        network(torch.zeros(1, 1, 2))


def test_a_cpu_tensor_without_dimensions_may_be_read_beside_gpu_tensors_but_not_written():
    assert (zero(3) + torch.tensor(1.0)).get_device() == 0
    assert torch.where(zero(3) > 0, zero(3), torch.tensor(0.0)).get_device() == 0
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        torch.tensor(1.0).add_(torch.tensor(1.0, device="cuda:0"))
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        zero() + one(3)


def test_indices_may_be_on_the_cpu_and_not_on_another_gpu():
    assert zero(3)[torch.tensor([0, 1])].get_device() == 0
    assert zero(3)[zero(3) > 0].get_device() == 0
    with pytest.raises(
        RuntimeError, match=r"indices should be either on cpu or on the same device .*\(cuda:0\)"
    ):
        zero(3)[torch.tensor([0], device="cuda:1")]
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu .*\(cpu\)"):
        torch.ones(3)[torch.tensor([0], device="cuda:1")]


def test_lengths_of_packed_sequences_must_be_on_the_cpu():
    batch = zero(2, 3, 4)
    packed = nn.utils.rnn.pack_padded_sequence(batch, torch.tensor([3, 2]), batch_first=True)
    assert packed.data.is_cuda
    assert not packed.batch_sizes.is_cuda
    message = "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        nn.utils.rnn.pack_padded_sequence(batch, torch.tensor([3, 2]).cuda(), batch_first=True)
    output, _ = nn.GRU(4, 5, batch_first=True).cuda()(packed)
    padded, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    padded.sum().backward()
    assert padded.is_cuda


def test_a_generator_of_another_kind_of_device_is_refused():
    with pytest.raises(RuntimeError, match=r"^Expected a 'cuda' device type for generator but found 'cpu'$"):
        torch.randn(2, device="cuda:1", generator=torch.Generator())
    with pytest.raises(RuntimeError, match=r"^Expected a 'cpu' device type for generator but found 'cuda'$"):
        torch.randn(2, generator=torch.Generator("cuda:1"))


def test_a_custom_operator_runs_on_a_gpu_or_says_that_it_cannot():
    @torch.library.custom_op("dpdemo_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * torch.full((1,), 2.0, device=x.device)

    @torch.library.custom_op("dpdemo_tests::cpu_only", mutates_args=(), device_types="cpu")
    def cpu_only(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    assert twice(one(2)).tolist() == [2, 2]
    assert twice(one(2)).get_device() == 1
    assert twice(torch.ones(2)).device.type == "cpu"
    with pytest.raises(NotImplementedError, match=r"dpdemo_tests.cpu_only.*code for 'cuda' was expected"):
        cpu_only(one(2))


class Doubled(torch.autograd.Function):
    """Twice its input; its gradient is left on the CPU."""

    @staticmethod
    def forward(ctx, data):  # noqa: ARG004
        return data * 2

    @staticmethod
    def backward(ctx, *gradients):  # noqa: ARG004
        return gradients[0].cpu()


def _assign(index, value):
    zero(3)[index] = value


# Each as a program would have it that forgot one `.cuda()`, and what CUDA's build says.
FORGOTTEN = {
    "an addend on another GPU": (lambda: zero(3) + one(3), apart("cuda:0", "cuda:1")),
    "an addend in place": (lambda: zero(3).add_(torch.ones(3)), apart("cuda:0", "cpu")),
    "a matrix on another GPU": (lambda: zero(2, 2) @ one(2, 2), elsewhere("mat2", "cuda:1", "cuda:0", "mm")),
    "a linear layer's input": (
        lambda: F.linear(one(2, 3), zero(4, 3), zero(4)),
        elsewhere("mat1", "cuda:1", "cuda:0", "addmm"),
    ),
    "a linear layer": (lambda: nn.Linear(2, 2)(zero(1, 2)), elsewhere("mat1", "cuda:0", "cpu", "addmm")),
    "an embedding's index": (
        lambda: F.embedding(torch.tensor([0, 1]), zero(3, 3)),
        elsewhere("index", "cpu", "cuda:0", "_index_select"),
    ),
    "a part": (lambda: torch.cat([zero(2), torch.ones(2)]), elsewhere("tensors", "cpu", "cuda:0", "cat")),
    "targets": (
        lambda: F.cross_entropy(zero(2, 3), torch.tensor([0, 1])),
        elsewhere("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    "a convolution's input": (
        lambda: nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2)),
        (
            "^Input type .torch.FloatTensor. and weight type .torch.cuda.FloatTensor. should be the same "
            "or input should be a MKLDNN tensor and weight is a dense tensor$"
        ),
    ),
    "a convolution": (
        lambda: nn.Conv2d(1, 1, 1)(zero(1, 1, 2, 2)),
        r"Input type \(torch.cuda.FloatTensor\) and weight type \(torch.FloatTensor\) should be the same",
    ),
    "DataParallel's module": (
        lambda: nn.DataParallel(nn.Linear(2, 2)).cuda(1)(torch.ones(4, 2)),
        r"on device cuda:0 \(device_ids\[0\]\) but found one of them on device: cuda:1",
    ),
    "einsum": (lambda: torch.einsum("ij,jk", zero(2, 2), torch.ones(2, 2)), "got mat2 is on cpu"),
    "a decoder's memory": (
        lambda: nn.TransformerDecoderLayer(4, 1, 8).cuda()(zero(2, 1, 4), torch.ones(2, 1, 4)),
        "is on cpu",
    ),
    "a bias of a convolution": (
        lambda: F.conv1d(zero(1, 1, 3), zero(1, 1, 1), torch.ones(1)),
        r"Input type \(torch.cuda.FloatTensor\) and bias type \(torch.FloatTensor\) should be the same$",
    ),
    "scatter_": (
        lambda: zero(3).scatter_(0, torch.tensor([0]), 1.0),
        r"got index is on cpu.*wrapper_CUDA_scatter__value\)",
    ),
    "masked_fill": (
        lambda: zero(3).masked_fill(torch.ones(3).bool(), 0),
        "^expected self and mask to be on the same device, but got mask on cpu and self on cuda:0$",
    ),
    "grid_sample": (
        lambda: F.grid_sample(zero(1, 1, 2, 2), torch.ones(1, 2, 2, 2), align_corners=False),
        r"^grid_sampler\(\): expected .* but input is on cuda:0 and grid is on cpu$",
    ),
    "attention": (
        lambda: F.scaled_dot_product_attention(zero(1, 1, 2, 8), torch.ones(1, 1, 2, 8), zero(1, 1, 2, 8)),
        "query.device: cuda:0 key.device: cpu and value.device: cuda:0 instead",
    ),
    "meshgrid": (lambda: torch.meshgrid(zero(2), torch.ones(2), indexing="ij"), "cuda:0 and cpu!"),
    "quantile": (lambda: torch.quantile(zero(4), torch.tensor([0.5])), "cuda:0 and cpu!"),
    "a matrix product's out": (
        lambda: torch.mm(zero(2, 2), zero(2, 2), out=torch.ones(2, 2)),
        "got self is on cuda:0, different from other tensors on cpu .*wrapper_CUDA_mm_out_out",
    ),
    "a tensordot's out": (
        lambda: torch.tensordot(zero(2, 2), zero(2, 2), 1, out=torch.ones(2, 2)),
        "tensors to be on the same device.*cuda:0 and cpu!",
    ),
    "a norm's out": (
        lambda: torch.linalg.norm(zero(2), out=torch.ones(())),
        "tensors to be on the same device.*cuda:0 and cpu!",
    ),
    "a number for a matrix product": (
        lambda: torch.addmm(torch.tensor(1.0), zero(2, 2), zero(2, 2)),
        "got mat1 is on cuda:0, different from other tensors on cpu",
    ),
    "a value assigned by a mask": (lambda: _assign(zero(3) > 0, torch.zeros(3)), "cuda:0 and cpu!"),
    "a value assigned by indices": (lambda: _assign([0, 1], torch.zeros(2)), "cuda:0 and cpu!"),
    "a value that is added": (
        lambda: zero(3).index_put_((torch.tensor([0]),), torch.ones(1), accumulate=True),
        "^expected device cuda:0 but got device cpu for value tensor$",
    ),
    "a gradient for backward": (
        lambda: (zero(3).requires_grad_() * 2).backward(torch.ones(3)),
        "^invalid gradient at index 0 - expected device cuda:0 but got cpu$",
    ),
    "a Function's gradient": (
        lambda: Doubled.apply(zero(3).requires_grad_()).sum().backward(),
        "^Function DoubledBackward returned an invalid gradient at index 0 - expected device cuda:0",
    ),
}


@pytest.mark.parametrize(
    ("storage", "guard"),
    [
        ("meta", torch.enable_grad),
        *(("cpu", guard) for guard in (torch.enable_grad, torch.no_grad, torch.inference_mode)),
    ],
)
@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_forgotten_move_is_cudas_error(what, storage, guard):
    compute, wording = FORGOTTEN[what]
    if "gradient" in what and guard is not torch.enable_grad:
        pytest.skip("there are no gradients")
    with suspended(), virtual_gpus(2, storage=storage), guard(), pytest.raises(RuntimeError, match=wording):
        compute()


def test_a_model_without_numbers_cannot_be_moved():
    with pytest.raises(NotImplementedError, match=r"^Cannot copy out of meta tensor; no data!$"):
        nn.Linear(2, 2, device="meta").cuda()


def test_what_cuda_takes_from_the_cpu_is_taken():
    x = zero(3)
    x[torch.tensor([0])] = 5.0
    x[torch.tensor([False, True, False]),] = 5.0
    x[[1]] = torch.tensor(3.0)
    x[2:] = torch.zeros(1)
    x[torch.tensor(0)] = torch.tensor(4.0)
    assert x.tolist() == [4, 3, 0]
    assert torch.lerp(zero(2), zero(2), torch.tensor(0.5)).is_cuda
    assert torch.ones(2).type_as(x).is_cuda
    # the result is where the first sequence is (native/PackedSequence.cpp)
    assert nn.utils.rnn.pad_sequence([zero(2), torch.ones(3)]).is_cuda
    assert not nn.utils.rnn.pad_sequence([torch.ones(3), zero(2)]).is_cuda
    assert torch.repeat_interleave(zero(3), zero(3).long()).is_cuda
    assert torch.tensor_split(zero(3), torch.tensor([1]))[0].is_cuda
    assert zero(3).resize_as_(torch.ones(2)).shape == (2,)


def test_a_list_on_several_devices_is_gone_through_one_by_one():
    first, second = torch._foreach_norm([zero(3), torch.ones(4)])
    assert (first.device.type, second.device.type) == ("cuda", "cpu")
    assert (first.item() ** 2, second.item()) == (pytest.approx(3), 2)
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        torch._foreach_add([zero(3), torch.ones(3)], [zero(3), zero(3)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3),
        lambda: torch.ones(3, device="cpu"),
        lambda: torch.tensor([1.0, 2.0, 3.0]),
        lambda: torch.arange(6.0).view(2, 3)[1],
    ],
)
@pytest.mark.filterwarnings("ignore:`torch.jit")  # PyTorch's own, when it loads its rules
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd])
def test_a_tensor_made_inside_a_transform_must_be_on_the_gpu_too(transform, make):
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        transform(lambda x: (x * make()).sum())(zero(3))
    assert transform(lambda x: (x * make().cuda()).sum())(zero(3)).is_cuda


def test_the_list_of_cudas_kernels_is_what_pytorch_was_generated_from():
    pytest.importorskip("yaml", reason="PyTorch's list of kernels is in YAML")
    import cuda_kernels

    from dpdemo.virtual.ops import mismatch as written

    if not torch.__version__.startswith("2.13."):
        pytest.skip("the list is that of torch 2.13")
    for kind, names in cuda_kernels.kernels().items():
        assert getattr(written, kind) == names


class Counting(TorchDispatchMode):
    """As a program counts its operators."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("num_modes", [1, 2])
def test_under_a_programs_own_modes_what_cpp_makes_is_let_through_and_the_users_is_not(num_modes):
    query, key = torch.randn(1, 4, 8, 16, device="cuda"), torch.randn(1, 2, 8, 16, device="cuda")
    moved, left = torch.randn(6, 5, device="cuda"), torch.randn(5, 3)
    with contextlib.ExitStack() as modes:
        for _ in range(num_modes):
            modes.enter_context(Counting())
        found = F.scaled_dot_product_attention(query, key, key, enable_gqa=True)
        assert found.device == moved[[0, 1]].device == torch.device("cuda:0")
        for mixed in (lambda: moved @ left, lambda: F.linear(moved, left.T), lambda: moved + left.T[0]):
            with pytest.raises(RuntimeError, match="same device"):
                mixed()
