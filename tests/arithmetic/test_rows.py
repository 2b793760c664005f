"""Finding the batch size of a call among its tensors' sizes."""

import pytest

from dpdemo.arithmetic.rows import likely_rows, sizes_along


@pytest.mark.parametrize(
    ("sizes", "owners", "rows"),
    [
        ([8, 8, 3], (), 8),
        ([3, 8, 8], (), 8),
        ([3, 8], (), 3),
        ([1, 4], (), 4),
        ([2, 2, 8], ("state", "state", "x"), 2),
        ([8, 2, 2], ("x", "state", "state"), 8),
        ([], (), 0),
    ],
)
def test_most_arguments_have_it_and_the_first_where_they_draw(sizes, owners, rows):
    assert likely_rows(sizes, owners) == rows


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        ([(32, 5, 7), (2, 32, 12), (2, 32, 12)], [32, 32, 32]),
        ([(32, 5, 7), (2, 32, 12)], [32, 2]),
        ([(3, 6, 4), (6, 6)], [3, 6]),
        ([(2, 6, 4), (2, 6, 4)], [2, 2]),
        ([(), (4,)], [0, 4]),
    ],
)
def test_of_an_lstms_states_the_batch_is_on_dimension_1(shapes, sizes):
    assert sizes_along(shapes, 0) == sizes
