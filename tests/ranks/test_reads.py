"""The numbers that a program reads of tensors: its own lists and arrays, and none that an observer makes."""

import pytest
import torch
import torch.distributed as dist

from dpdemo.ranks.observe import reads
from dpdemo.ranks.observe.notes import Notes
from dpdemo.ranks.observe.rows import fingerprints


@pytest.fixture
def noted(monkeypatch, tmp_path):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    found, notes = [], Notes(tmp_path)
    monkeypatch.setattr(notes, "write", found.append)
    reads.watch(notes, lambda: 7)
    yield found
    notes.close()


def test_a_number_of_a_list_or_an_array_is_noted_with_its_line(noted):
    torch.tensor(2.5).tolist()
    torch.tensor([0.5]).numpy()
    assert [(each.value, each.how, each.collectives) for each in noted] == [
        (2.5, "float", 7),
        (0.5, "float", 7),
    ]
    assert all("test_reads.py:" in each.at for each in noted)


def test_several_numbers_are_a_checksum(noted):
    for last in (2.0, 2.0, 3.0):
        torch.tensor([1.0, last]).numpy()
    first, same, other = (each.value for each in noted)
    assert (first == same, first == other, noted[0].how) == (True, False, "numbers")


def test_what_an_observer_makes_of_a_batch_is_not_noted(noted):
    fingerprints(torch.arange(6).view(3, 2))
    assert noted == []
