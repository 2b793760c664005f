"""GPUs without numbers: shapes, devices and bytes as with numbers, and an error where numbers are needed."""

import sys
import threading

import pytest
import torch
from processes import run
from torch import nn
from torch.nn import functional as F  # noqa: N812 - PyTorch's own custom

from dpdemo.virtual import UnsupportedOpError, suspended, virtual_gpus

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.fixture
def gpus():
    """Four virtual GPUs without numbers."""
    with virtual_gpus(4, storage="meta") as opened:
        yield opened


def learned(*shape):
    """Return a tensor on GPU 0 of which no number is known, as of all that is computed from parameters."""
    return nn.Parameter(torch.ones(shape)).cuda().detach()


HUGE = """
import resource, torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - PyTorch's own custom
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
def test_a_model_of_a_thousand_million_parameters_takes_no_memory():
    done = run([sys.executable, "-c", HUGE], check=True)
    assert int(done.stdout) * 1024 < 0.4 * 10**9


@pytest.mark.parametrize(
    ("read", "op"),
    [
        (lambda x: x.sum().item(), "Tensor.item"),
        (lambda x: bool(x.sum() > 0), "Tensor.__bool__"),
        (lambda x: float(x.sum()), "Tensor.__float__"),
        (lambda x: [0, 1][x.long().sum()], "Tensor.__index__"),
        (lambda x: 3 in x, "Tensor.__contains__"),
        (lambda x: x.tolist(), "Tensor.tolist"),
        (lambda x: x.cpu().numpy(), "Tensor.numpy"),
        (lambda x: x.numpy(force=True), "Tensor.numpy"),
        (lambda x: f"{x.sum():.3f}", "Tensor.__format__"),
        (lambda x: x.nonzero(), "aten.nonzero.default"),
        (lambda x: x[x > 0], "aten.index.Tensor"),
        (lambda x: x.masked_select(x > 0), "aten.masked_select.default"),
        (lambda x: x.unique(), "aten._unique2.default"),
        (lambda x: torch.equal(x, x.clone()), "aten.equal.default"),
        (lambda x: x.repeat_interleave(x.long()), "aten.repeat_interleave.Tensor"),
    ],
)
def test_what_needs_numbers_is_an_error_that_names_the_op_and_says_what_to_do(gpus, read, op):
    x = learned(4)
    x.grad = torch.empty_like(x)
    before = gpus.live_bytes(0)
    with pytest.raises(UnsupportedOpError) as caught:
        read(x)
    message = str(caught.value)
    assert message.startswith(f"{op}: expected an operator whose result has the same shape"), message
    assert 'use storage="cpu", or keep what decides' in message
    caught = None
    assert gpus.live_bytes(0) <= before + 8 * 512


def test_an_error_inside_a_replica_names_the_op_too():
    class Early(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(RuntimeError, match=r"in replica 0 on device 0\.(.|\n)*Tensor\.__bool__: expected"):
        nn.DataParallel(Early())(learned(8, 2))


def test_a_tensor_is_printed_with_its_shape_and_its_device():
    assert repr(torch.ones(2, 3, device="cuda:1")) == "tensor(..., device='cuda:1', size=(2, 3))"
    assert "device='cuda:0'" in repr(nn.Linear(2, 3).cuda().weight)
    assert f"{torch.ones(2).cuda()}" == "tensor(..., device='cuda:0', size=(2,))"
    assert "size=(2,)" in str(learned(2).cpu())
    assert "Linear(in_features=2" in repr(nn.Linear(2, 3).cuda())


def test_tensors_on_the_host_are_real():
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


def test_tensors_of_the_host_that_came_from_a_gpu_or_are_parameters_say_that_they_are_there(gpus):
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
def test_a_real_tensor_that_is_written_with_what_is_not_known_cannot_be_read_until_it_is_rewritten(write):
    host = torch.ones(3)
    write(host, learned(3))
    readers = [torch.Tensor.tolist, torch.Tensor.numpy, lambda x: x[0].item(), lambda x: bool(x.all())]
    for read in readers:
        with pytest.raises(UnsupportedOpError, match="expected an operator whose result"):
            read(host)
    assert (host + 1).shape == (3,)
    host.fill_(4)
    assert (host + 1).tolist() == [5, 5, 5]


def test_a_model_keeps_its_parameters_the_same_objects_when_it_moves():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    before = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.cuda()
    assert [old is other for old, other in zip(before, model.parameters(), strict=True)] == [True] * 3
    assert model[0].weight is model[1].weight
    assert all(parameter.is_cuda for parameter in optimizer.param_groups[0]["params"])
    assert all(isinstance(parameter, nn.Parameter) and parameter.is_leaf for parameter in before)


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
def test_mixing_with_numbers_and_scalars_of_the_host_works(device):
    x = torch.ones(3, device=device)
    for result in (x + 1, 2 * x, x + torch.tensor(1.0), x.mul_(torch.tensor(2.0)), x / torch.tensor(3)):
        assert result.device == torch.device(device)


def test_threads_see_the_gpus_without_numbers_too(gpus):
    results = []

    def work():
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


def test_the_fast_path_of_an_encoder_in_evaluation_works():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    for model in (layer, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)):
        model.cuda().eval()
        with torch.inference_mode():
            assert model(torch.ones(6, 10, 32).cuda()).get_device() == 0


def test_lengths_on_the_host_say_how_long_a_packed_sequence_is(gpus):
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


TWO_DTYPES = {
    "mm": lambda wide, narrow: wide[0] @ narrow[0],
    "addmm": lambda wide, narrow: F.linear(wide[0], narrow[0], narrow[0, 0]),
    "mv": lambda wide, narrow: wide[0] @ narrow[0, 0],
    "bmm": torch.bmm,
    "convolution": F.conv1d,
    "cdist": torch.cdist,
    "grid_sample": lambda wide, narrow: F.grid_sample(wide[None], narrow[None, ..., :2], align_corners=False),
}


@pytest.mark.parametrize("name", TWO_DTYPES)
@pytest.mark.parametrize("storage", ["cpu", "meta"])
def test_operands_of_two_dtypes_are_refused_with_and_without_numbers(name, storage):
    with suspended(), virtual_gpus(1, storage=storage):
        wide = torch.ones(2, 4, 4, device="cuda")
        with pytest.raises(RuntimeError, match=r"[Ff]loat.*(BF|bf)loat16"):
            TWO_DTYPES[name](wide, wide.bfloat16())
