"""The ledger is the same with numbers and without, phase by phase, for the same program.

What is not the same stands in docs/virtual-gpus.md, and below.
"""

import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from fastpart import mostly_slow
from programs import PROGRAMS, numbers, pages_of, training, words
from torch import nn

from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import Config
from dpdemo.models import modules as models
from dpdemo.virtual import virtual_gpus

pytestmark = pytest.mark.usefixtures("without_collector")


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """What PyTorch loads at first use keeps its caller's tensors alive until garbage is collected."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)


def differences(program):
    """What differs, with the phase."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real, sizes_only = pages_of(program, "cpu"), pages_of(program, "meta")
    assert list(real) == list(sizes_only)
    return [
        (phase, left, other)
        for phase, page in real.items()
        for left, other in zip(page, sizes_only[phase], strict=True)
        if left != other
    ]


@pytest.mark.parametrize("program", mostly_slow(PROGRAMS.values(), 12), ids=list(PROGRAMS))
def test_both_storages_give_the_same_ledger(program):
    assert differences(program) == []


@pytest.mark.parametrize("name", mostly_slow(MODELS, 6))
def test_the_built_in_models_too(name):
    def program(notes):
        gpu = torch.device("cuda", 0)
        placement = models.Placement(nn.DataParallel, gpu, gpu)
        config = Config(model=name)
        built = models.build(config, placement)
        notes("build")
        shape = (6, *MODELS[name].input(config.input_size, config.output_size))
        batch = words(*shape) if name == "hybrid" else numbers(*shape)
        output = built.model(batch.to(built.input_device))
        notes("forward")
        output.float().sum().backward()
        notes("backward")

    assert differences(program) == []


def test_a_difference_is_seen():
    """An embedding bag's mean: the CPU keeps one number more for each bag than CUDA and sizes alone."""
    bag = training((lambda: nn.EmbeddingBag(50, 16), lambda: (words(9, 7),)))
    assert {phase for phase, _, _ in differences(bag)} >= {"forward 0", "loss 0"}


def test_one_hot_looks_at_its_numbers_on_the_cpu_alone():
    """CUDA does not, where the number of classes is given: two reads are counted that a GPU does not make."""

    def program(notes):
        F.one_hot(torch.zeros(3, dtype=torch.long, device="cuda"), 5)
        notes("one hot")

    moved = [other for _, _, other in differences(program)]
    assert any(isinstance(page, dict) and page.get("num_device_to_host") == 0 for page in moved)


def _turned_layer_norm(gpu):
    data = torch.randn(3, 4, 5, device=gpu, requires_grad=True)
    result = F.layer_norm(data, [5])
    return torch.autograd.grad(result, data, torch.ones(3, 5, 4, device=gpu).transpose(1, 2))[0]


def _convolution(gpu, data, weight):
    formats = torch.contiguous_format, torch.channels_last
    shapes = (2, 3, 9, 9), (4, 3, 3, 3)
    pair = [
        torch.randn(shape, device=gpu).to(memory_format=formats[last])
        for shape, last in zip(shapes, (data, weight), strict=True)
    ]
    return F.conv2d(*pair)


@pytest.mark.parametrize(
    "make",
    [
        _turned_layer_norm,
        *(lambda gpu, d=d, w=w: _convolution(gpu, d, w) for d in (False, True) for w in (False, True)),
    ],
    ids=["layer norm", "convolution", "of the kernel", "of the data", "of both"],
)
def test_results_are_laid_out_alike(make):
    strides = []
    for storage in ("cpu", "meta"):
        with virtual_gpus(1, storage=storage):
            strides.append(make("cuda:0").stride())
    assert strides[0] == strides[1]
