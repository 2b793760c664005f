"""The losses of a step, by the names that a user gives them."""

import pytest
import torch

from dpdemo import RunError
from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.models.losses import _LOSSES, make_loss, resolve_loss
from dpdemo.results.memorydata import LOSSES, PARTS
from dpdemo.virtual.blocks import KIND_NAMES

OUTPUT = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
LOSS = OUTPUT.sum()
CROSS_ENTROPY = torch.nn.functional.cross_entropy(OUTPUT, torch.zeros(2, dtype=torch.int64)).item()


def test_every_name_that_can_be_given_has_a_loss():
    assert set(_LOSSES) == {"auto", *LOSSES}


def test_the_parts_of_a_report_are_the_ledgers_kinds_and_the_workspaces():
    assert sorted((*KIND_NAMES, "library workspaces")) == sorted(PARTS)


@pytest.mark.parametrize(
    ("name", "output", "expected"),
    [
        ("mean", OUTPUT, 2.5),
        ("mean", (OUTPUT, OUTPUT + 1, torch.tensor([7])), 6.0),  # of each that is floating-point
        ("mse", OUTPUT, 55 / 6),
        ("cross-entropy", OUTPUT, CROSS_ENTROPY),
        ("cross-entropy", OUTPUT[None], CROSS_ENTROPY),
        ("output.loss", {"loss": torch.tensor([1.0, 3.0]), "logits": OUTPUT}, 2.0),
        ("auto", {"loss": torch.tensor([1.0, 3.0]), "logits": OUTPUT}, 2.0),
        ("auto", OUTPUT, 2.5),
        ("auto", (OUTPUT, torch.tensor(3.0)), 3.0),
        ("auto", (torch.tensor(3.0), torch.tensor(4.0)), 7.0),  # which of them is the loss is not known
    ],
)
def test_a_loss_is_what_its_name_says(name, output, expected):
    assert make_loss(name)(output).item() == pytest.approx(expected, *tolerance_of("float32"))


@pytest.mark.parametrize("output", [{"loss": LOSS}, LOSS, (OUTPUT, LOSS)])
def test_a_loss_that_a_model_returns_takes_no_other_tensor(output):
    assert make_loss("auto")(output) is LOSS


def test_it_is_told_which_loss_auto_was():
    assert resolve_loss("auto", {"loss": OUTPUT}) == "output.loss"
    assert resolve_loss("auto", OUTPUT) == "mean"
    assert resolve_loss("auto", LOSS) == resolve_loss("auto", [LOSS, OUTPUT]) == "output.loss"
    assert resolve_loss("mse", {"loss": OUTPUT}) == "mse"


@pytest.mark.parametrize(
    ("name", "output", "message"),
    [
        ("mean", torch.tensor([1]), "expected an output with a floating-point tensor, got Tensor"),
        ("output.loss", OUTPUT, "expected an output with a `loss`, got Tensor"),
    ],
)
def test_an_output_without_what_a_loss_needs_is_told(name, output, message):
    with pytest.raises(RunError, match=message):
        make_loss(name)(output)
