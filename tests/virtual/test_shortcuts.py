"""A shortcut gives the shapes that PyTorch's own kernel for meta tensors gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.virtual.ops import shortcuts
from dpdemo.virtual.ops.shapes import SHAPES

aten = torch.ops.aten


@st.composite
def mutually_broadcastable_shapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Draw two shapes, either of which may be shorter, or 1 where the other is not."""
    whole = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    first, second = ([1 if draw(st.booleans()) else size for size in whole] for _ in range(2))
    return first[draw(st.integers(0, len(whole))) :], second


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a meta tensor."""
    return torch.empty(shape, dtype=dtype, device="meta")


HALF = torch.bfloat16
CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (aten.gelu.default, (meta(2, 3),)),
    (aten.gelu_backward.default, (meta(2, 3, dtype=HALF), meta(2, 3, dtype=HALF))),
    (aten.add.Tensor, (meta(2, 3), meta(2, 3))),
    (aten.add.Tensor, (meta(2, 3), meta(3))),
    (aten.add.Tensor, (meta(2, 3), meta(2, 3, dtype=HALF))),
    (aten.add.Tensor, (meta(2, 3), meta(3, 2).t())),
    (aten.add.Tensor, (meta(2, 3), meta())),
    (aten.add.Tensor, (meta(2, 3, dtype=HALF), meta())),
    (aten.add.Tensor, (0.5, meta(2, 3))),
    (aten.div.Tensor, (meta(2, 3, dtype=torch.int64), meta(2, 3, dtype=torch.int64))),
    (aten.select_backward.default, (meta(2, 4), [2, 3, 4], 1, 2)),
    (aten.mul.Tensor, (meta(2, 3, dtype=torch.int64), 2)),
    (aten.mul.Tensor, (meta(2, 3), 2j)),
    (aten.addmm.default, (meta(4), meta(2, 3), meta(3, 4))),
    (aten.addmm.default, (meta(2, 4), meta(2, 3), meta(3, 4))),
    (aten.native_layer_norm.default, (meta(5, 2, 8), [8], meta(8), meta(8), 1e-5)),
    (aten.native_layer_norm.default, (meta(5, 2, 8), [2, 8], None, None, 1e-5)),
    (
        aten.native_layer_norm_backward.default,
        (meta(5, 8), meta(5, 8), [8], meta(5, 1), meta(5, 1), meta(8), meta(8), [True, True, False]),
    ),
]


@pytest.mark.parametrize(("op", "args"), CALLS)
def test_the_result_is_what_pytorchs_own_kernel_makes(op: Any, args: tuple[Any, ...]) -> None:
    assert shortcuts
    expected, found = op(*args), SHAPES[op](*args)
    for one, other in zip(
        *((each,) if isinstance(each, torch.Tensor) else each for each in (found, expected)), strict=True
    ):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


@given(mutually_broadcastable_shapes(), st.sampled_from([aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor]))
def test_operands_of_different_shapes_give_the_shape_and_strides_of_pytorchs_own_kernel(
    shapes: tuple[list[int], list[int]], op: Any
) -> None:
    operands = [meta(*shape) for shape in shapes]
    expected, found = op(*operands), SHAPES[op](*operands)
    assert (found.shape, found.stride()) == (expected.shape, expected.stride())


@pytest.mark.parametrize(
    ("op", "args"),
    [(aten.addmm.default, (meta(4), meta(2, 3), meta(2, 4))), (aten.add.Tensor, (meta(2), meta(3)))],
)
def test_shapes_that_do_not_fit_are_pytorchs_own_error(op: Any, args: tuple[Any, ...]) -> None:
    with pytest.raises(RuntimeError) as expected:
        op(*args)
    with pytest.raises(RuntimeError) as found:
        SHAPES[op](*args)
    assert str(found.value) == str(expected.value)
