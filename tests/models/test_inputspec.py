"""Parsing of inputs, without torch."""

import pytest
import torch

from dpdemo.errors import UsageError
from dpdemo.models.inputspec import DTYPES, WrittenInput, read_input


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("32x128", WrittenInput("", (32, 128), "float32")),
        ("32,128", WrittenInput("", (32, 128), "float32")),
        (" 1 ", WrittenInput("", (1,), "float32")),
        ("mask=32x128:bool", WrittenInput("mask", (32, 128), "bool")),
        ("ids=32x16:int64<1000", WrittenInput("ids", (32, 16), "int64", 1000)),
        ("x=4:half", WrittenInput("x", (4,), "float16")),
    ],
)
def test_a_shape_may_have_a_name_a_type_and_a_bound(text, read):
    assert read_input(text) == read


@pytest.mark.parametrize(
    "text", ["", "x", "3x", "x=", "3 x 4", "3x4:int9", "1=3", "3x4<5", "-3", "3x4:int64<"]
)
def test_anything_else_is_an_error_that_names_the_types(text):
    with pytest.raises(UsageError, match="expected \\[NAME=\\]SHAPE") as caught:
        read_input(text)
    assert "bfloat16" in caught.value.hint


@pytest.mark.parametrize("name", DTYPES.values())
def test_every_type_is_one_of_torchs(name):
    assert isinstance(getattr(torch, name), torch.dtype)
