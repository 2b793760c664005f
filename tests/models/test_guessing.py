"""Working out the input of a model that came without one."""

import pytest
import torch
from torch import nn

from dpdemo.models.guessing import guess_input


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, ids):
        return self.table(ids)


class TwoInputs(nn.Linear):
    def forward(self, x, y):
        return super().forward(x) + y


class KeywordOnly(nn.Linear):
    def forward(self, x, *, mask):
        return super().forward(x) * mask


def flattened():
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(2 * 28 * 28, 10))


@pytest.mark.parametrize(
    ("model", "written"),
    [
        (nn.Linear(784, 10), "32x784"),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), "32x12"),
        (nn.Linear(6, 2).double(), "32x6"),
        (nn.Conv2d(3, 8, 3), "32x3x32x32"),
        (nn.Conv1d(4, 8, 3), "32x4x32"),
        (flattened(), "32x1x28x28"),
        (Tokens(), "32x16:int64<50"),
        (nn.LSTM(7, 3, batch_first=True), "32x16x7"),
        (nn.TransformerEncoderLayer(8, 2, batch_first=True), "32x16x8"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_first_layer_says_the_shape(model, written):
    assert guess_input(model, 32) == written


@pytest.mark.parametrize("layer", [nn.TransformerEncoderLayer(8, 2), nn.LSTM(8, 8)])
def test_rows_that_a_later_layer_would_take_for_one_sequence_are_not_the_first_guess(layer):
    assert guess_input(nn.Sequential(nn.Linear(5, 8), layer), 4) == "4x16x5"


@pytest.mark.parametrize(
    "model",
    [TwoInputs(3, 3), KeywordOnly(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 6))],
    ids=["two arguments", "a keyword of its own", "no layer that tells", "it does not run"],
)
def test_what_cannot_be_worked_out_is_not_guessed(model):
    assert guess_input(model, 32) is None


def test_the_model_itself_is_not_called_or_changed():
    calls = []
    model = nn.BatchNorm1d(3)
    whole = nn.Sequential(nn.Linear(3, 3), model).train()
    whole.register_forward_hook(lambda *_: calls.append(1))
    before = {name: value.clone() for name, value in whole.state_dict().items()}
    assert guess_input(whole, 4) == "4x3"
    assert whole.training
    assert all(torch.equal(value, before[name]) for name, value in whole.state_dict().items())
