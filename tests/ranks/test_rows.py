"""Fingerprints of rows: equal for equal content alone, in whatever form a batch holds it."""

import hypothesis.extra.numpy as arrays
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.ranks.observe.rows import fingerprints

ROWS = st.integers(0, 3).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(-3, 3), min_size=width + 1, max_size=width + 1), min_size=1, max_size=8
    )
)


def labels(batch):
    found = fingerprints(batch)
    return [found.labels[row] for row in found.rows]


@given(ROWS)
def test_rows_are_alike_just_if_their_content_is(rows):
    found = fingerprints(torch.tensor(rows)).rows
    assert len(found) == len(rows)
    for one, mine in zip(found, rows, strict=True):
        assert [one == other for other in found] == [mine == others for others in rows]


@given(arrays.arrays(np.float32, (6, 9), elements=st.sampled_from([-1, 0, 1, 0.5])))
def test_long_rows_are_alike_just_if_their_content_is(array):
    found = fingerprints(torch.from_numpy(array)).rows
    plain = [tuple(row) for row in (array + 0.0).view(np.uint32)]
    assert [found.index(each) for each in found] == [plain.index(each) for each in plain]


def test_a_row_is_the_same_alone_and_in_another_batch():
    table = torch.randn(6, 3, 5)
    assert fingerprints(table[2:4].clone()).rows == fingerprints(table).rows[2:4]


def test_a_constant_column_does_not_make_rows_alike():
    assert len(set(fingerprints({"mask": torch.ones(4, 9), "ids": torch.arange(36).view(4, 9)}).rows)) == 4


def test_columns_that_change_places_are_other_rows():
    one, two = torch.arange(8).view(2, 4), torch.arange(8, 16).view(2, 4)
    assert fingerprints((one, two)).rows != fingerprints((two, one)).rows


def test_padding_with_zeros_changes_nothing():
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    assert fingerprints(ids).rows == fingerprints(torch.nn.functional.pad(ids, (0, 4))).rows


def test_arrays_and_lists_hold_the_rows_of_tensors():
    numbers = torch.arange(5)
    assert fingerprints(numbers.numpy()).rows == fingerprints(numbers).rows
    assert labels(numbers.tolist()) == labels(numbers) == labels(numbers.float().view(-1, 1))


def test_bytes_that_fill_no_word_are_counted():
    image = torch.randint(0, 255, (4, 3, 3, 3), dtype=torch.uint8)
    assert fingerprints(image[1:2].clone()).rows == fingerprints(image).rows[1:2]


def test_a_list_of_images_of_other_sizes_has_a_row_for_each():
    assert len(fingerprints([torch.rand(3, 4), torch.rand(3, 5)], 2).rows) == 2


def test_words_are_rows():
    first, second, third = fingerprints({"text": ["one", "two", "one"]}).rows
    assert first == third != second


def test_a_batch_without_rows_has_no_fingerprints():
    assert fingerprints(object()) is None
    assert fingerprints(None) is None


def test_a_class_of_a_library_is_read_as_a_tensor():
    class Image(torch.Tensor):
        """As those of fastai and monai."""

    plain = torch.rand(3, 8)
    assert fingerprints(plain.as_subclass(Image)).rows == fingerprints(plain).rows
