"""Batches of several ranks become one; samples and paths keep what they are."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.ranks.against.numbers import checksum, kept, picked, projected, put, sampled
from dpdemo.ranks.against.rows import joined
from dpdemo.ranks.against.settings import Settings
from dpdemo.ranks.against.store import Store


class Pair(NamedTuple):
    x: object
    y: object


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_tensors_are_joined_in_the_order_of_ranks(sizes):
    rows = torch.arange(sum(sizes) * 2.0).reshape(-1, 2)
    parts = rows.split(sizes)
    found = joined([{"x": part, "both": Pair(part, [part, "a"]), "name": "a"} for part in parts])
    assert torch.equal(found["x"], rows)
    assert torch.equal(found["both"].x, rows)
    assert torch.equal(found["both"].y[0], rows)
    assert found["name"] == "a"


def test_lists_of_words_are_joined():
    assert joined([["a", "b"], ["c"]]) == ["a", "b", "c"]


def test_batches_padded_to_other_lengths_are_refused():
    with pytest.raises(ValueError, match=r"cannot be joined: \[2, 3\], \[2, 4\]"):
        joined([torch.ones(2, 3), torch.ones(2, 4)])


@pytest.mark.parametrize("is_left", [False, True])
def test_batches_padded_to_other_lengths_are_put_into_one_that_the_program_pads(is_left):
    texts = [[5, 6, 7, 8], [4], [9, 3]]

    def padded(texts, size):
        zeros = [[0] * (size - len(text)) for text in texts]
        return torch.tensor(
            [more + text if is_left else text + more for text, more in zip(texts, zeros, strict=True)]
        )

    whole = padded(texts, 4)
    parts = [padded(texts[:1], 4), padded(texts[1:], 2)]
    masked = whole.where(whole != 6, 1)
    parts[0][parts[0] == 6] = 1
    found = joined(
        [{"x": [part], "rows": part[:, :1]} for part in parts], {"x": [whole], "rows": whole[:, :1]}
    )
    assert torch.equal(found["x"][0], masked)
    with pytest.raises(ValueError, match="cannot be joined"):
        joined(parts, whole[:2])


def test_a_row_has_one_number_wherever_it_is():
    rows = torch.randn(6, 5)
    assert projected(rows[[3, 1]]) == pytest.approx([projected(rows)[3], projected(rows)[1]])
    assert projected(torch.cat([rows, torch.zeros(6, 2)], 1)) == pytest.approx(projected(rows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_numbers_are_put_back_as_they_were(dtype):
    rows = torch.randn(3, 4).mul(9).to(dtype)
    other = torch.zeros(4, 3, dtype=dtype).T
    assert put(other, kept(rows).data, str(dtype))
    assert torch.equal(other, rows)
    assert not put(torch.zeros(2, dtype=dtype), kept(rows).data, str(dtype))


def test_a_nudge_moves_each_number_by_a_part_of_itself():
    rows, other = torch.randn(100), torch.zeros(100)
    put(other, kept(rows).data, "torch.float32", nudge=0.125)
    assert torch.allclose((other / rows - 1).abs(), torch.tensor(0.125), atol=1e-6)


def test_the_numbers_of_shards_are_those_of_the_whole():
    whole = torch.randn(10_000)
    sizes = (6_000, 4_000)
    parts = [picked(part, (len(part),)) for part in whole.split(sizes)]
    assert picked(whole, sizes) == b"".join(parts)
    assert sampled(whole).norm == pytest.approx(float(whole.norm()), rel=1e-6)


def test_checksums_tell_batches_apart():
    batch = {"x": torch.ones(2), "name": "a"}
    assert checksum(batch) == checksum({"x": torch.ones(2), "name": "a"})
    assert checksum(batch) != checksum({"x": torch.ones(2), "name": "b"})


def test_values_are_read_where_they_were_stored(tmp_path):
    store = Store(tmp_path / "0.store")
    places = [store.add(value) for value in ([1], "two", (3,))]
    assert [Store(tmp_path / "0.store").read(place) for place in reversed(places)] == [(3,), "two", [1]]


def test_settings_reach_a_process_as_they_are(monkeypatch):
    settings = Settings("/folder", 4, steps=2, nudge=0.5)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.of_environment() == settings
