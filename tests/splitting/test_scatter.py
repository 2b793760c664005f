"""Scatter with chunk sizes, against torch's own scatter where that has such chunks."""

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.parallel.scatter_gather import scatter_kwargs

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.arithmetic.weights import split_by_weights
from dpdemo.splitting.scatter import scatter_by
from dpdemo.virtual import virtual_gpus

OTHERS = (3, 2.5, "text", None, True, b"x", frozenset({1}))
SHAPES = {"tensor": (), "wide": (2,), "deep": (2, 1)}


class Pair(NamedTuple):
    left: Any
    right: Any


def leaves():
    return st.sampled_from([*SHAPES, *OTHERS])


def structures(inner):
    keys = st.sampled_from(["a", "b", 1])
    return (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
        | st.dictionaries(keys, inner, max_size=2)
        | st.dictionaries(keys, inner, max_size=2).map(OrderedDict)
    )


nested = st.recursive(leaves(), structures, max_leaves=6)


def filled(value, rows, dim):
    """Replace names by tensors with so many rows."""
    if isinstance(value, str) and value in SHAPES:
        shape = (3,) * dim + (rows, *SHAPES[value])
        return torch.arange(float(torch.Size(shape).numel())).view(shape)
    if isinstance(value, dict):
        return type(value)((key, filled(item, rows, dim)) for key, item in value.items())
    if isinstance(value, Pair):
        return Pair(*(filled(item, rows, dim) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(filled(item, rows, dim) for item in value)
    return value


def written(value):
    """Write out a structure with its types, and tensors by device and numbers, so that it can be compared."""
    if isinstance(value, torch.Tensor):
        return (str(value.device), tuple(value.shape), value.cpu().flatten().tolist())
    if isinstance(value, dict):
        return (type(value), [(key, written(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [written(item) for item in value])
    return value


@given(
    args=st.lists(nested, max_size=3).map(tuple),
    kwargs=st.dictionaries(st.sampled_from(["x", "y"]), nested, max_size=2),
    rows=st.integers(1, 12),
    num_gpus=st.integers(1, 5),
    dim=st.integers(0, 1),
)
def test_with_torch_chunks_sizes_it_is_torchs_scatter(args, kwargs, rows, num_gpus, dim):
    args, kwargs = filled(args, rows, dim), filled(kwargs, rows, dim)
    with virtual_gpus(num_gpus):
        ids = list(range(num_gpus))
        theirs = scatter_kwargs(args, kwargs, ids, dim)
        ours = scatter_by(lambda size: split_batch(size, num_gpus), args, kwargs, ids, dim)
        count = len(ours.args)  # torch's are not equally many where one of the two has no tensor
        assert count <= min(len(theirs[0]), len(theirs[1]) if kwargs else count)
        assert written(ours.args) == written(tuple(tuple(argument) for argument in theirs[0][:count]))
        assert written(ours.kwargs) == written((*theirs[1], *[{}] * count)[:count])


@given(
    rows=st.integers(1, 30),
    weights=st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any),
    dim=st.integers(-2, 1),
)
def test_each_gpu_gets_its_rows_in_order_and_a_gpu_without_rows_gets_nothing(rows, weights, dim):
    whole = torch.arange(rows * rows).view(rows, rows)
    with virtual_gpus(len(weights)):
        split = split_by_weights(rows, weights)
        found = scatter_by(
            lambda size: split_by_weights(size, weights), (whole,), {}, range(len(weights)), dim
        )
        assert found.device_ids == split.used()
        assert [argument[0].size(dim) for argument in found.args] == list(split.sizes())
        assert [argument[0].device.index for argument in found.args] == list(found.device_ids)
        assert torch.equal(torch.cat([argument[0].cpu() for argument in found.args], dim), whole)


def scatter_over_three(*args, dim=0, **kwargs):
    with virtual_gpus(3):
        return scatter_by(lambda size: split_by_weights(size, (0, 1, 2)), args, kwargs, (0, 1, 2), dim)


def test_without_a_tensor_each_gpu_that_has_a_weight_gets_the_arguments():
    found = scatter_over_three("text", flag=True)
    assert found == ((1, 2), (("text",), ("text",)), ({"flag": True}, {"flag": True}))


def test_no_arguments_are_no_chunks():
    assert scatter_over_three() == ((), (), ())


def test_tensors_of_other_sizes_are_an_error_and_no_rows_are_lost():
    message = (
        r"tensors of 6 rows along dimension 0, as argument `0`\['x'\] has, got 1 - at argument `mask`\[1\]"
    )
    with pytest.raises(ValueError, match=message):
        scatter_over_three({"x": torch.zeros(6)}, mask=[1, torch.zeros(1)])


def test_a_tensor_without_the_dimension_is_an_error_that_names_it():
    with pytest.raises(
        ValueError, match=r"a dimension 1, which is cut, got the shape \[6\] - at argument `0`"
    ):
        scatter_over_three(torch.zeros(6), dim=1)
