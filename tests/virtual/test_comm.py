"""The functions behind DataParallel check, share and say what comm.cpp does."""

import re

import pytest
import torch
from torch import nn
from torch.nn.parallel import comm, replicate
from torch.overrides import TorchFunctionMode

from dpdemo.virtual import UnsupportedOpError

pytestmark = pytest.mark.usefixtures("gpus")


def on(index, *shape):
    return torch.ones(shape, device=f"cuda:{index}")


def test_broadcast_returns_the_tensor_itself_where_it_is():
    tensor = on(1, 3)
    copies = comm.broadcast(tensor, [0, 1, 2])
    assert [copy.get_device() for copy in copies] == [0, 1, 2]
    assert copies[1] is tensor


def test_coalesced_broadcast_keeps_the_order_of_mixed_and_repeated_tensors():
    first, second = on(0, 2), on(0, 3).double()
    tensors = [first, second, first, on(0, 2, 2) * 5, second * 2]
    copies = comm.broadcast_coalesced(tensors, [0, 1], 16)
    assert all(same is tensor for same, tensor in zip(copies[0], tensors, strict=True))
    for copy, tensor in zip(copies[1], tensors, strict=True):
        assert copy.get_device() == 1
        assert copy.dtype == tensor.dtype
        assert copy.tolist() == tensor.tolist()


def test_scatter_gives_views_where_the_tensor_is_and_copies_elsewhere():
    tensor = torch.arange(7.0, device="cuda:0")
    chunks = comm.scatter(tensor, [0, 1, 2])
    assert [chunk.tolist() for chunk in chunks] == [[0, 1, 2], [3, 4, 5], [6]]
    chunks[0].mul_(0)
    chunks[1].mul_(0)
    assert tensor.tolist() == [0, 0, 0, 3, 4, 5, 6]
    uneven = comm.scatter(tensor, [2, 3], chunk_sizes=[1, 6])
    assert [len(chunk) for chunk in uneven] == [1, 6]


def test_gather_concatenates_on_any_device_and_keeps_channels_last():
    parts = [on(index, 1, 2, 3, 3).contiguous(memory_format=torch.channels_last) for index in range(3)]
    whole = comm.gather(parts, 0, 2)
    assert whole.shape == (3, 2, 3, 3)
    assert whole.get_device() == 2
    assert whole.is_contiguous(memory_format=torch.channels_last)
    assert comm.gather(parts, 1, "cpu").device.type == "cpu"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: torch._C._scatter(on(0, 2), [], None, 0, None),
            "Expected at least one device to scatter to",
        ),
        (
            lambda: comm.scatter(on(0, 2), [0, 1], [1]),
            (
                "Expected devices and chunk_sizes to be of same length, "
                "but got len(devices) = 2 and len(chunk_sizes) = 1"
            ),
        ),
        (lambda: comm.gather([]), "Expected at least one tensor to gather from"),
        (
            lambda: comm.gather([on(0, 2), torch.ones(2)]),
            "Expected all input tensors to be CUDA tensors, but tensor at index 1 has device 'cpu'",
        ),
        (
            lambda: comm.gather([on(0, 2), on(1, 2, 2)]),
            (
                "Expected all input tensors to have the same number of dimensions, "
                "but tensor at index 1has 2 dimensions, (expected 1)"
            ),
        ),
        (
            lambda: comm.gather([on(0, 2, 3), on(1, 2, 4)]),
            "Input tensor at index 1 has invalid shape [2, 4], but expected [2, 3]",
        ),
        (lambda: torch._C._broadcast(on(0, 1), [-1]), "Expected non-negative device index, but got -1"),
        (lambda: comm.broadcast_coalesced([on(1, 2)], [0, 1]), "All tensors must be on devices[0]: 0"),
    ],
)
def test_misuse_fails_in_pytorchs_words(call, message):
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: comm.broadcast(on(0, 2), out=[on(1, 2)]),
        lambda: comm.scatter(on(0, 2), out=[on(1, 2)]),
        lambda: comm.gather([on(0, 2)], out=on(0, 2)),
    ],
)
def test_outputs_given_by_the_user_are_refused_by_name(call):
    with pytest.raises(UnsupportedOpError, match=r"torch\._C\._(broadcast|scatter|gather)_out: "):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: comm.gather([on(0, 2), on(1, 2)], dim=1), r"range of \[-1, 0\], but got 1"),
        (lambda: comm.gather([on(0), on(1)], dim=1), "Dimension specified as 1 but tensor has no dimensions"),
    ],
)
def test_a_dimension_that_is_not_there_is_an_index_error(call, message):
    with pytest.raises(IndexError, match=message):
        call()


def on_each(size=256):
    """One tensor a GPU: ones, twos and so on."""
    return [torch.full((size,), index + 1.0, device=f"cuda:{index}") for index in range(4)]


def test_gradients_are_added_up_while_they_are_sent(gpus):
    parts = on_each()
    gpus.reset_peaks()
    before, moved = gpus.live_bytes(1), gpus.bytes_moved_between
    total = comm.reduce_add(parts, destination=1)
    assert total.get_device() == 1
    assert total.tolist() == [10.0] * 256
    assert gpus.peak_bytes(1) == before + 1024  # the sum alone
    sent = {pair: size - moved.get(pair, 0) for pair, size in gpus.bytes_moved_between.items()}
    assert {pair: size for pair, size in sent.items() if size} == {(0, 1): 1024, (2, 1): 1024, (3, 1): 1024}
    assert [part[0].item() for part in parts] == [1.0, 2.0, 3.0, 4.0]


def test_nccl_takes_dense_tensors_each_on_a_gpu_of_its_own():
    nccl = torch.cuda.nccl
    parts = on_each()
    assert nccl.is_available(parts)
    assert not nccl.is_available([parts[0], parts[0]])
    assert not nccl.is_available([parts[0], torch.ones(256)])
    assert not nccl.is_available([part.to_sparse() for part in parts])
    assert not nccl.is_available([part.view(16, 16).t() for part in parts])


def test_nccl_adds_and_does_nothing_else():
    parts = on_each()
    torch.cuda.nccl.reduce(parts, root=2)
    assert parts[2].tolist() == [10.0] * 256
    with pytest.raises(UnsupportedOpError, match="expected the operation SUM, got number 1"):
        torch.cuda.nccl.reduce(parts, root=2, op=1)


def test_what_nccl_does_not_take_is_added_up_all_the_same():
    total = comm.reduce_add([part.to_sparse() for part in on_each()], destination=0)
    assert total.to_dense().tolist() == [10.0] * 256


def test_under_a_default_device_each_replica_has_its_parameters_on_its_own_gpu():
    model = nn.Linear(4, 2).cuda()
    with torch.device("meta"):
        replicas = replicate(model, [0, 1, 2])
    assert [replica.weight.device.index for replica in replicas] == [0, 1, 2]


def seen_by_a_mode(device):
    """What a TorchFunctionMode sees of a backward pass."""
    seen = []

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.randn(4, 4, device=device, requires_grad=True)
    result = (x @ x).tanh().sum()
    with Log():
        torch.autograd.backward(result)
    return seen


def test_a_mode_that_looks_at_functions_sees_no_more_than_on_the_cpu():
    assert seen_by_a_mode("cuda") == seen_by_a_mode("cpu")


@pytest.mark.parametrize(("layers", "counted"), [(1, 3), (2, 1)])
def test_replicas_on_one_gpu_share_one_buffer_and_a_single_tensor_with_the_model(layers, counted):
    """Seen on an H100 with torch 2.11: the count of batches, alone of its type, goes up once a replica."""
    model = nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(layers))).cuda()
    parallel = nn.DataParallel(model, device_ids=[0, 0, 0])
    parallel(torch.randn(9, 4, device="cuda"))
    assert [layer.num_batches_tracked.item() for layer in model] == [counted] * layers


def test_a_gpu_that_is_named_again_holds_one_copy_more_whatever_number_of_times(gpus):
    tensors = [torch.ones(256, device="cuda:0"), torch.ones(512, device="cuda:0")]
    before = gpus.live_bytes(0)
    copies = comm.broadcast_coalesced(tensors, [0, 0, 0, 0])
    assert gpus.live_bytes(0) == before + 768 * 4
    copies[1][0].fill_(7)
    assert [each[0][0].item() for each in copies] == [1, 7, 7, 7]
