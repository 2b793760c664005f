"""GPUs without numbers: shapes, devices and bytes as with numbers, and an error where numbers are needed."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from processes import run
from torch import nn
from torch.optim import optimizer as optimizer_hooks

from dpdemo.virtual import UnsupportedOpError, VirtualGpus, virtual_gpus


@pytest.fixture
def gpus() -> Iterator[VirtualGpus]:
    """Four virtual GPUs without numbers."""
    with virtual_gpus(4, storage="meta") as opened:
        yield opened


def learned(*shape: int) -> torch.Tensor:
    """Return a tensor on GPU 0 of which no number is known, as of all that is computed from parameters."""
    return nn.Parameter(torch.ones(shape)).cuda().detach()


HUGE = """
import resource, torch
from torch import nn
from dpdemo.virtual import virtual_gpus

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = most()  # a build of PyTorch with CUDA takes much by itself
with virtual_gpus(2, storage="meta") as gpus:
    model = nn.DataParallel(nn.Sequential(*(nn.Linear(16384, 16384) for _ in range(4))).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) > 10**9
    model(torch.ones(8, 16384)).sum().backward()
    optimizer.step()
    assert gpus.live_bytes(0) > 16 * 10**9
    assert gpus.peak_bytes(1) > 4 * 10**9
print(most() - before)
"""


@pytest.mark.slow
def test_a_model_of_a_thousand_million_parameters_takes_no_memory() -> None:
    done = run([sys.executable, "-c", HUGE], check=True)
    assert int(done.stdout) * 1024 < 0.4 * 10**9


@pytest.mark.parametrize(
    ("read", "op"),
    [
        (lambda x: x.sum().item(), "Tensor.item"),
        (lambda x: bool(x.sum() > 0), "Tensor.__bool__"),
        (lambda x: float(x.sum()), "Tensor.__float__"),
        (lambda x: int(x.sum()), "Tensor.__int__"),
        (lambda x: [0, 1][x.long().sum()], "Tensor.__index__"),
        (lambda x: complex(x.sum()), "Tensor.__complex__"),
        (lambda x: 3 in x, "Tensor.__contains__"),
        (lambda x: x.tolist(), "Tensor.tolist"),
        (lambda x: x.cpu().tolist(), "Tensor.tolist"),
        (lambda x: x.cpu().numpy(), "Tensor.numpy"),
        (lambda x: x.numpy(force=True), "Tensor.numpy"),
        (lambda x: f"{x.sum():.3f}", "Tensor.__format__"),
        (lambda x: x.nonzero(), "aten.nonzero.default"),
        (lambda x: x[x > 0], "aten.index.Tensor"),
        (lambda x: x.masked_select(x > 0), "aten.masked_select.default"),
        (lambda x: x.unique(), "aten._unique2.default"),
        (lambda x: x.unique_consecutive(), "aten.unique_consecutive.default"),
        (lambda x: torch.equal(x, x.clone()), "aten.equal.default"),
        (lambda x: torch.allclose(x, x), "aten.allclose.default"),
        (lambda x: torch.bincount(x.long()), "aten.bincount.default"),
        (lambda x: x.repeat_interleave(x.long()), "aten.repeat_interleave.Tensor"),
        (lambda x: torch.where(x > 0), "aten.nonzero.default"),
        (lambda x: list(range(x.long().sum())), "Tensor.__index__"),
        (lambda x: x if x.any() else None, "Tensor.__bool__"),
    ],
)
def test_what_needs_numbers_is_an_error_that_names_the_op_and_says_what_to_do(
    gpus: VirtualGpus, read: Any, op: str
) -> None:
    x = learned(4)
    x.grad = torch.empty_like(x)
    before = gpus.live_bytes(0)
    with pytest.raises(UnsupportedOpError) as caught:
        read(x)
    message = str(caught.value)
    assert message.startswith(f"{op}: expected an operator whose result has the same shape"), message
    assert 'use storage="cpu", or keep what decides' in message
    caught = None  # type: ignore[assignment]
    assert gpus.live_bytes(0) <= before + 8 * 512


def test_an_error_inside_a_replica_names_the_op_too(gpus: VirtualGpus) -> None:
    class Early(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    assert len(gpus) == 4
    with pytest.raises(RuntimeError, match=r"in replica 0 on device 0\.(.|\n)*Tensor\.__bool__: expected"):
        nn.DataParallel(Early())(learned(8, 2))


def test_a_tensor_is_printed_with_its_shape_and_its_device(gpus: VirtualGpus) -> None:
    assert len(gpus) == 4
    assert repr(torch.ones(2, 3, device="cuda:1")) == "tensor(..., device='cuda:1', size=(2, 3))"
    assert "device='cuda:0'" in repr(nn.Linear(2, 3).cuda().weight)
    assert f"{torch.ones(2).cuda()}" == "tensor(..., device='cuda:0', size=(2,))"
    assert "size=(2,)" in str(learned(2).cpu())
    assert "Linear(in_features=2" in repr(nn.Linear(2, 3).cuda())


def test_tensors_on_the_host_are_real(gpus: VirtualGpus) -> None:
    assert len(gpus) == 4
    lengths = torch.tensor([3, 1, 2])
    assert lengths.tolist() == [3, 1, 2]
    assert lengths.sort(descending=True)[1].tolist() == [0, 2, 1]
    assert sorted(torch.randperm(5).tolist()) == [0, 1, 2, 3, 4]
    assert torch.arange(6).view(2, 3)[lengths[1]].tolist() == [3, 4, 5]
    assert bool((lengths > 0).all())
    assert torch.from_numpy(lengths.numpy()).sum().item() == 6
    torch.manual_seed(3)
    drawn = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4))


def test_tensors_of_the_host_that_came_from_a_gpu_or_are_parameters_say_that_they_are_there(
    gpus: VirtualGpus,
) -> None:
    back = learned(3).cuda(2).cpu()
    parameter = nn.Linear(2, 2).weight
    for tensor in (back, parameter, back + 1, back + torch.ones(3)):
        assert tensor.device == torch.device("cpu")
        assert tensor.is_cpu
        assert not tensor.is_cuda
        assert tensor.get_device() == -1
    assert gpus.bytes_moved.device_to_host == 12


@pytest.mark.parametrize(
    "write",
    [
        lambda host, x: host.copy_(x),
        lambda host, x: host.add_(x.cpu()),
        lambda host, x: host.__setitem__(0, x[0]),
        lambda host, x: torch.add(x.cpu(), 1, out=host),
        lambda host, x: torch._foreach_add_([host], [x.cpu()]),
    ],
)
def test_a_real_tensor_that_is_written_with_what_is_not_known_cannot_be_read_until_it_is_written_anew(
    gpus: VirtualGpus, write: Any
) -> None:
    assert len(gpus) == 4
    host = torch.ones(3)
    write(host, learned(3))
    readers: list[Any] = [
        torch.Tensor.tolist,
        torch.Tensor.numpy,
        lambda x: x[0].item(),
        lambda x: bool(x.all()),
    ]
    for read in readers:
        with pytest.raises(UnsupportedOpError, match="expected an operator whose result"):
            read(host)
    assert (host + 1).shape == (3,)
    host.fill_(4)
    assert (host + 1).tolist() == [5, 5, 5]


def test_a_model_keeps_its_parameters_the_same_objects_when_it_moves(gpus: VirtualGpus) -> None:
    assert len(gpus) == 4
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    before = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.cuda()
    assert [one is other for one, other in zip(before, model.parameters(), strict=True)] == [True] * 3
    assert model[0].weight is model[1].weight
    assert all(parameter.is_cuda for parameter in optimizer.param_groups[0]["params"])
    assert all(isinstance(parameter, nn.Parameter) and parameter.is_leaf for parameter in before)


def test_a_model_from_before_the_block_keeps_them_too_and_its_optimizer() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    before = list(model.parameters())
    with virtual_gpus(2, storage="meta") as gpus:
        model.cuda()
        assert all(one is other for one, other in zip(before, model.parameters(), strict=True))
        nn.DataParallel(model)(torch.ones(4, 4)).sum().backward()
        optimizer.step()
        assert gpus.live_by_kind(0)["optimizer state"] == 8 * 512
        assert gpus.live_by_kind(0)["gradients"] == 512


def test_a_model_that_stays_outside_keeps_its_numbers() -> None:
    model = nn.Linear(2, 2)
    weight = model.weight.detach().clone()
    with virtual_gpus(1, storage="meta"):
        assert model(torch.ones(1, 2)).shape == (1, 2)
    assert torch.equal(model.weight, weight)


def _lstm_with_state_on_the_host() -> Any:
    return nn.LSTM(2, 2).cuda()(torch.ones(1, 1, 2).cuda(), (torch.ones(1, 1, 2), torch.ones(1, 1, 2)))


SAME = "Expected all tensors to be on the same device, but "
ADDMM = r" \(when checking argument in method wrapper_CUDA_addmm\)"


@pytest.mark.parametrize(
    ("clash", "wording"),
    [
        (
            lambda: nn.Linear(2, 2)(torch.ones(1, 2).cuda()),
            f"{SAME}got mat1 is on cuda:0, different from other tensors on cpu{ADDMM}",
        ),
        (
            lambda: nn.Linear(2, 2).cuda()(torch.ones(1, 2)),
            f"{SAME}got mat1 is on cpu, different from other tensors on cuda:0{ADDMM}",
        ),
        (
            lambda: torch.ones(2).cuda(0) + torch.ones(2).cuda(1),
            f"{SAME}found at least two devices, cuda:0 and cuda:1!",
        ),
        (
            lambda: torch.ones(2).cuda() + torch.ones(2),
            f"{SAME}found at least two devices, cuda:0 and cpu!",
        ),
        (
            lambda: torch.ones(2).cuda() + torch.ones(2).cuda().cpu(),
            f"{SAME}found at least two devices, cuda:0 and cpu!",
        ),
        (
            lambda: nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 2, 2).cuda()),
            r"Input type \(torch.cuda.FloatTensor\) and weight type \(torch.FloatTensor\) should be the same",
        ),
        (
            _lstm_with_state_on_the_host,
            "found input tensor at cuda:0 and hidden tensor at cpu",
        ),
        (
            lambda: nn.DataParallel(nn.Linear(2, 2)).cuda(1)(torch.ones(4, 2)),
            r"on device cuda:0 \(device_ids\[0\]\) but found one of them on device: cuda:1",
        ),
    ],
)
def test_operands_on_two_devices_are_cudas_error(gpus: VirtualGpus, clash: Any, wording: str) -> None:
    assert len(gpus) == 4
    with pytest.raises(RuntimeError) as with_sizes:
        clash()
    assert re.search(wording, str(with_sizes.value)), with_sizes.value


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_mixing_with_numbers_and_scalars_of_the_host_works(gpus: VirtualGpus, device: str) -> None:
    assert len(gpus) == 4
    x = torch.ones(3, device=device)
    for result in (x + 1, 2 * x, x + torch.tensor(1.0), x.mul_(torch.tensor(2.0)), x / torch.tensor(3)):
        assert result.device == torch.device(device)


def test_an_index_may_be_on_the_host(gpus: VirtualGpus) -> None:
    assert len(gpus) == 4
    x = torch.ones(5, 2, device="cuda:3")
    assert x[torch.tensor([0, 2])].shape == (2, 2)
    assert x[[1, 2, 3]].get_device() == 3
    x[torch.tensor([1])] = 0
    x[0] = 3
    x[:, 1] = torch.ones(5)


def test_threads_see_the_gpus_without_numbers_too(gpus: VirtualGpus) -> None:
    results: list[Any] = []

    def work() -> None:
        x = learned(128).cuda(2) * 2
        results.append((x.device, gpus.live_bytes(2)))
        try:
            x.sum().item()
        except UnsupportedOpError as error:
            results.append(str(error).partition(":")[0])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [(torch.device("cuda:2"), 512), "Tensor.item"]


def test_everything_is_put_back_after_the_block() -> None:
    names = ("item", "tolist", "__bool__", "__float__", "__contains__", "device", "to", "numpy")
    before = [vars(torch.Tensor).get(name) for name in names], nn.Parameter.__new__, nn.Module._apply
    hooks = len(optimizer_hooks._global_optimizer_post_hooks)
    with pytest.raises(UnsupportedOpError, match="item"), virtual_gpus(1, storage="meta"):
        learned(1).item()
    assert (
        [vars(torch.Tensor).get(name) for name in names],
        nn.Parameter.__new__,
        nn.Module._apply,
    ) == before
    assert len(optimizer_hooks._global_optimizer_post_hooks) == hooks
    assert nn.Parameter(torch.ones(2)).tolist() == [1, 1]
    meta = torch.ones(1, device="meta")
    assert meta.device.type == "meta"
    with pytest.raises(RuntimeError, match="meta"):
        meta.item()


def test_a_tensor_that_outlives_the_block_is_a_meta_tensor() -> None:
    with virtual_gpus(1, storage="meta"):
        tensor = torch.ones(2, device="cuda")
    assert tensor.device.type == "meta"
    with virtual_gpus(1):
        assert not tensor.is_cuda


@pytest.mark.parametrize("storage", ["gpu", "", None, "META"])
def test_another_storage_is_an_error(storage: Any) -> None:
    wording = re.escape(f"`storage`: expected 'cpu' or 'meta', got {storage!r}")
    with pytest.raises(ValueError, match=wording), virtual_gpus(1, storage=storage):
        pass


def test_the_fast_path_of_an_encoder_in_evaluation_works(gpus: VirtualGpus) -> None:
    assert len(gpus) == 4
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    for model in (layer, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)):
        model.cuda().eval()
        with torch.inference_mode():
            assert model(torch.ones(6, 10, 32).cuda()).get_device() == 0


def test_lengths_on_the_host_say_how_long_a_packed_sequence_is(gpus: VirtualGpus) -> None:
    sequence = nn.utils.rnn.pack_padded_sequence(
        torch.ones(3, 5, 128).cuda(), torch.tensor([5, 2, 1]), batch_first=True
    )
    assert sequence.data.shape == (8, 128)
    assert sequence.batch_sizes.tolist() == [3, 2, 1, 1, 1]
    assert gpus.live_by_kind(0)["temporaries"] == 8 * 512
    padded, lengths = nn.utils.rnn.pad_packed_sequence(sequence, batch_first=True)
    assert padded.shape == (3, 5, 128)
    assert padded.get_device() == 0
    assert lengths.tolist() == [5, 2, 1]


def test_autograd_goes_the_same_ways(gpus: VirtualGpus) -> None:
    assert len(gpus) == 4
    x = torch.ones(4, device="cuda:1", requires_grad=True)
    (gradient,) = torch.autograd.grad((x * 2).sum(), x, create_graph=True)
    assert gradient.get_device() == 1
    y = x.to("cuda:2") * 3
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.get_device() == 1


def test_a_tensor_of_the_host_that_is_too_large_to_be_made_has_no_numbers() -> None:
    with virtual_gpus(1, storage="meta") as gpus:
        layer = nn.Linear(300_000, 300_000)  # 360 GB
        assert layer.weight.device == torch.device("cpu")
        assert layer.cuda().weight is next(layer.parameters())
        assert gpus.live_by_kind(0)["parameters"] == 4 * 300_000**2 + 4 * 300_000 + 128
        noise = torch.randn(300_000, 300_000)
        assert (noise.device.type, noise.is_meta) == ("cpu", True)
        assert not torch.randn(1000, 1000).is_meta
        with pytest.raises(RuntimeError, match="negative dimension"):
            torch.empty(-1)
