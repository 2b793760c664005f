"""What real cards drew, as people printed it, against what virtual ones draw.

The numbers are from issues of PyTorch and its neighbours; PyTorch prints four digits.
"""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own custom
from torch import nn

from dpdemo.virtual import virtual_gpus

ROUNDED = {"rtol": 0, "atol": 0.5e-4 + 1e-6}


def assert_prints(numbers, printed):
    torch.testing.assert_close(numbers.cpu(), torch.tensor(printed), **ROUNDED)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("device", ["cuda:0", "cuda:3"])
def test_uniform_numbers_of_seed_0(device):
    """pytorch#47347; the second line from Storch's README (a binding to libtorch)."""
    torch.manual_seed(0)
    first = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290]
    assert_prints(torch.rand(9, device=device), first)
    second = [[0.9722, 0.7910, 0.4690], [0.3300, 0.3345, 0.3783], [0.7640, 0.6405, 0.1103]]
    assert_prints(torch.rand(3, 3, device=device), second)


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("seed", "printed"),
    [
        (10, [-0.1029, 1.6810, -0.2708]),  # pytorch#79496
        (42, [0.1940, 2.1614, -0.1721, 0.8491, -1.9244, 0.6530, -0.6494, -0.8175, 0.5280, -1.2753]),
    ],
)
def test_normal_numbers(seed, printed):
    """Seed 42: the documentation of FlashInfer's LogitsPipe, and pytorch#158398."""
    torch.manual_seed(seed)
    assert_prints(torch.randn(len(printed), device="cuda"), printed)


@pytest.mark.usefixtures("gpus")
def test_each_draw_goes_on_behind_the_one_before():
    """Six tensors that a public report of `torch._foreach_sub` under `torch.compile` prints."""
    torch.manual_seed(42)
    for printed in (
        [0.1940, 2.1614, -0.1721, 0.8491],
        [0.1391, -0.1082, -0.7174, 0.7566],
        [-0.5187, 1.2268, 0.6255, -0.9117],
        [-0.6974, -1.8688, -0.8832, -1.6627],
        [-1.2682, -0.0383, -0.1029, 1.4400],
        [1.4640, -0.3238, 0.7740, 1.5892],
    ):
        assert_prints(torch.randn(4, device="cuda"), printed)


@pytest.mark.usefixtures("gpus")
def test_a_layer_that_is_made_on_a_gpu_begins_as_it_does_there():
    """mrdbourke/pytorch-deep-learning#759."""
    with torch.device("cuda"):
        torch.manual_seed(42)
        layer = nn.Linear(1, 1)
    assert_prints(layer.weight.detach(), [[0.2259]])
    assert_prints(layer.bias.detach(), [0.9754])


@pytest.mark.parametrize(
    ("card", "printed"),
    [("H100-80GB", [-0.6970, -0.7780, 0.3267]), ("A100-80GB", [0.1549, -0.6797, -0.1656])],
)
def test_the_end_of_a_large_tensor_shows_the_card(card, printed):
    """pytorch#143086."""
    with virtual_gpus(1, card=card):
        generator = torch.Generator("cuda").manual_seed(1)
        drawn = torch.randn(49 * 12 * 112 * 144, device="cuda", generator=generator)
        assert_prints(drawn[:3], [-0.2963, 2.6764, -0.1408])
        assert_prints(drawn[-3:], printed)


def test_a_small_card_shows_itself_sooner():
    """pytorch#158398, on a GeForce RTX 3060."""
    with virtual_gpus(1, card="RTX3060"):
        generator = torch.Generator("cuda").manual_seed(42)
        drawn = torch.randn(1, 64, 2048, device="cuda", generator=generator)
        assert_prints(
            drawn[0, :3, -3:],
            [[1.4540, -2.7733, -0.8932], [0.1124, 0.2769, -1.2535], [-1.0001, -1.1552, -0.6955]],
        )
        assert_prints(drawn[0, -1, -3:], [-0.4841, 1.2850, -0.0282])


def test_dropout_drops_what_a_card_drops():
    """intel/torch-xpu-ops#2926, on a GeForce RTX 4080 SUPER: the first and the last that are dropped."""
    with virtual_gpus(1, card="RTX4080S"):
        torch.cuda.manual_seed_all(1)
        dropped = F.dropout(torch.ones(512 * 4 * 1024, device="cuda"), 0.1) == 0
        places = dropped.nonzero().flatten().tolist()
    assert places[:3] == [8, 14, 20]
    assert places[-3:] == [2097121, 2097140, 2097151]
