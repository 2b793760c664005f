"""Each operator has one record, whose fields are known."""

import pytest
import torch

from dpdemo.virtual.ops.special import on, special

add, mul, neg = (torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor, torch.ops.aten.neg.default)


@pytest.fixture(autouse=True)
def records(monkeypatch):
    """Use a table of records of the test's own."""
    kept: dict = {}
    monkeypatch.setattr("dpdemo.virtual.ops.special.records", kept)
    return kept


def test_two_facts_of_one_operator_stand_in_one_record_and_others_have_none(records):
    @on("shape", add, mul, why="a test")
    def shape(*args):
        return args

    on("product", add, why="a test")("add_cuda")
    assert (special(add).shape, special(add).product) == (shape, "add_cuda")
    assert (special(mul).shape, special(mul).product) == (shape, None)
    assert special(neg) is special(torch.ops.aten.exp.default)
    assert list(records) == [add, mul]


def test_a_fact_that_no_record_has_is_refused():
    with pytest.raises(AttributeError, match="shapes"):
        on("shapes", add, why="a test")(lambda: None)
