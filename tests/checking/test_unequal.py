"""Checking with unequal chunks: what is right stays so, and what is wrong is found."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from dpdemo import UsageError, WeightedDataParallel, check, loss_parts


class MeanInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def losses(self, x, y):
        return F.cross_entropy(self.linear(x), y, reduction="none")

    def forward(self, x, y):
        return self.losses(x, y).mean()


class PartsInside(MeanInside):
    def forward(self, x, y):
        return {"loss": loss_parts(self.losses(x, y)), "logits": self.linear(x)}


class ForgottenCount(MeanInside):
    def forward(self, x, y):
        losses = self.losses(x, y)
        return loss_parts(losses, torch.ones_like(losses) * len(x))


def batch(size):
    return torch.randn(size, 5), torch.arange(size) % 3


WEIGHTS = [(), (1, 2, 2), (0, 2, 1)]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_loss_by_sum_and_count_is_one_gpus(weights):
    assert check(PartsInside, batch, gpus=3, batch_size=31, weights=weights).codes == ()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_mean_inside_forward_is_found(weights):
    assert "DP501" in check(MeanInside, batch, gpus=3, batch_size=31, weights=weights).codes


def test_a_wrong_count_is_found():
    assert not check(ForgottenCount, batch, gpus=3, batch_size=31, weights=(1, 2, 2)).ok


def test_a_model_that_is_weighted_already_is_checked_as_it_cuts():
    def wrapped():
        return WeightedDataParallel(MeanInside(), weights=(0, 1, 1))

    report = check(wrapped, batch, gpus=3, batch_size=30, data_size=30)
    (finding,) = [finding for finding in report.findings if finding.code == "DP501"]
    assert "DP213" not in report.codes  # a GPU of weight 0 idles on purpose
    assert "2.00 times" in finding.message


def test_chunks_are_cut_as_they_are_written_of_a_batch_that_they_add_up_to():
    report = check(MeanInside, batch, gpus=3, chunks=(4, 13, 13))
    (finding,) = [finding for finding in report.findings if finding.code == "DP501"]
    assert "at batch 30, chunks of 4+13+13" in finding.message
    assert check(PartsInside, batch, gpus=3, chunks=(4, 13, 13)).codes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunks": (4, 13, 13), "weights": (1, 2, 2)}, "expected one of them, got both"),
        ({"chunks": (4, 13.5, 13)}, "expected rows for each GPU"),
        ({"chunks": (4, 13, 13), "batch_size": 31}, "expected a batch size of 30, got 31"),
        ({"chunks": (4, 26)}, "expected a weight for each of the 3 GPUs, got 2"),
    ],
)
def test_impossible_chunks_are_a_usage_error(options, message):
    with pytest.raises(UsageError, match=message):
        check(PartsInside, batch, gpus=3, **options)


@pytest.mark.parametrize("weights", [(1, 2), (0, 0, 0), (1, -1, 1), (1, "2", 1)])
def test_impossible_weights_are_a_usage_error(weights):
    with pytest.raises(UsageError, match="- at argument `weights`"):
        check(PartsInside, batch, gpus=3, weights=weights)
