"""The blocks of a model are the layer that it repeats, or those that are named."""

import pytest
from torch import nn

from dpdemo import UsageError
from dpdemo.memory.blocks import blocks_of, inner_first, repeated_blocks


class Block(nn.Module):
    """A layer of two."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))


class Net(nn.Module):
    """Three blocks and a head."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(4, 2)


def test_the_layer_that_a_model_repeats_is_its_block():
    model = Net()
    assert repeated_blocks(model) is Block
    assert blocks_of(model, ()) == list(model.blocks)


def test_a_model_without_a_repeated_layer_has_no_blocks():
    assert blocks_of(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), ()) == []


def test_named_classes_are_found_in_the_order_of_the_model():
    model = Net()
    assert blocks_of(model, ("Linear", "Block"))[0] is model.blocks[0]
    assert blocks_of(model, ("Linear",))[-1] is model.head


def test_a_block_inside_another_comes_first():
    model = Net()
    found = inner_first(blocks_of(model, ("Block", "Sequential")))
    assert [type(each).__name__ for each in found] == ["Sequential"] * 3 + ["Block"] * 3


@pytest.mark.parametrize(
    ("name", "hint"),
    [("Blok", "did you mean Block?"), ("Decoder", "the model has Linear (7), Block (3), Sequential (3)")],
)
def test_an_unknown_class_is_an_error_that_lists_those_of_the_model(name, hint):
    with pytest.raises(UsageError, match=f"got {name}") as error:
        blocks_of(Net(), (name,))
    assert hint in error.value.hint


def test_the_model_itself_is_no_block_of_its_own():
    with pytest.raises(UsageError, match="got Net"):
        blocks_of(Net(), ("Net",))
