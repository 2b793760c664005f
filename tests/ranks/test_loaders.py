"""The DataLoaders of a rank: which of them are one and the same in its report."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from dpdemo.ranks.observe.datasets import contents, fingerprint, part_of
from dpdemo.ranks.observe.loaders import LoaderNames, LoaderNotes
from dpdemo.ranks.observe.wrappers import _note_calls
from dpdemo.virtual.applying import Patches


@pytest.fixture
def names():
    return LoaderNames()


def make(names, *, draw=False):
    loader = DataLoader(range(4))
    name = names.name(loader)
    if draw:
        names.drawn(loader)
    return loader, name


def test_loaders_that_wait_side_by_side_have_names_of_their_own(names):
    made = [make(names) for _ in range(3)]
    first, second, third = (name for _, name in made)
    assert (second, third) == (f"{first} (loader 2)", f"{first} (loader 3)")


def test_a_loader_made_anew_for_each_epoch_keeps_its_name(names):
    assert len({make(names, draw=True)[1] for _ in range(3)}) == 1


def test_loaders_that_two_lines_ask_a_function_for_have_names_of_their_own(names):
    first = make(names, draw=True)[1]
    assert make(names, draw=True)[1] == f"{first} (loader 2)"


class Odd:
    """A data set whose attributes a library made: a class of NumPy, and an array that cannot be cut."""

    def __init__(self, rank):
        self.rank, self.kind, self.whole = rank, np.int64, Uncut()


class Uncut:
    shape = (2,)

    def tobytes(self):
        raise NotImplementedError


def test_shards_of_a_data_set_with_odd_attributes_are_told_apart():
    assert fingerprint(Odd(0)) == fingerprint(Odd(0)) != fingerprint(Odd(1))
    assert contents(Odd(0)) == contents(Odd(1))


def test_a_part_of_a_data_set_is_known_by_its_length_and_order():
    data = list(range(8))
    one, same, other = (Subset(data, order) for order in ([1, 2], [1, 2], [2, 1]))
    assert part_of(one) == part_of(same) != part_of(other)
    assert (part_of(one)[0], part_of(data)) == (2, ())


class Loop:
    """A program's loop over loaders whose batches are rows and their numbers, observed at both doors."""

    def __init__(self):
        self.events = []
        self.notes = LoaderNotes(SimpleNamespace(write=self.events.append))

    def read(self, data, size=2, *, number=None):
        """Read a loader to its end, or so many of its batches; return the pass and these."""
        loader = DataLoader([(row, at) for at, row in enumerate(data)], size)
        vars(loader)["_dpdemo_at"] = f"train.py:{len(data)}"
        found, batches = self.notes.begin(loader), list(loader)[:number]
        for at, batch in enumerate(batches):
            self.notes.got(found, batch, list(range(at * size, min(len(data), (at + 1) * size))))
        if number is None:
            self.notes.end(found, is_complete=True)
        return found, batches

    def trained(self):
        """End the program; return by loader how many samples each pass drew and trained on."""
        self.notes.end_all()
        return [(each.count, each.trained) for each in self.events if hasattr(each, "trained")]


@pytest.fixture
def loop():
    return Loop()


def rows(count, first=0):
    return [torch.tensor([1.0, first + at, 0.5]) for at in range(count)]


def test_batches_that_were_all_read_before_the_first_step_are_trained_on(loop):
    _, batches = loop.read(rows(90))
    for batch in reversed(batches):
        loop.notes.entered("net", batch[0])
    assert loop.trained() == [(90, 90)]


def test_rows_that_were_mixed_and_cut_again_after_reading_are_trained_on(loop):
    _, batches = loop.read(rows(8))
    mixed = torch.cat([batch[0] for batch in batches])[torch.tensor([5, 0, 3, 6])]
    loop.notes.entered("net", mixed)
    loop.notes.end_all()
    (found,) = loop.events
    assert (found.trained, sorted(found.used)) == (4, [0, 3, 5, 6])


def test_a_sample_of_which_collating_makes_two_rows_is_trained_on_once(loop):
    found, _ = loop.read(rows(0), number=0)
    for first in (0, 4):
        pairs = torch.cat([torch.stack(rows(4, first)), torch.stack(rows(4, first + 100))])
        loop.notes.got(found, pairs, list(range(first, first + 4)))
        loop.notes.entered("net", pairs)
    loop.notes.end(found, is_complete=True)
    assert loop.trained() == [(8, 8)]


def test_the_last_batch_of_a_prefetcher_that_changes_rows_is_trained_on(loop):
    found, batches = loop.read(rows(6), number=1)
    for at, batch in enumerate([*list(DataLoader(rows(6), 2))[1:], None]):
        if batch is None:
            loop.notes.end(found, is_complete=True)
        else:
            loop.notes.got(found, [batch, torch.arange(2)], [2 * at + 2, 2 * at + 3])
        loop.notes.entered("net", batches[0][0] / 7)
    assert loop.trained() == [(6, 6)]


def test_a_next_epoch_that_was_begun_in_advance_is_not_trained_on_yet(loop):
    _, batches = loop.read(rows(6))
    loop.notes.entered("net", batches[0][0])
    loop.read(rows(6), number=2)
    loop.notes.entered("net", batches[2][0])
    loop.notes.trained()
    assert loop.trained() == [(6, 4), (4, 0)]


def test_an_evaluation_with_the_numbers_of_the_training_is_not_trained_on(loop):
    loop.read(rows(4, first=100))
    _, batches = loop.read(rows(6))
    for batch in batches:
        loop.notes.entered("net", batch)
    assert loop.trained() == [(6, 6), (4, 0)]


def test_rows_that_an_epoch_left_out_are_those_of_the_next_one(loop):
    for _ in range(2):
        _, batches = loop.read(rows(6))
        loop.notes.entered("net", batches[0][0])
    assert loop.trained() == [(6, 2), (6, 2)]


def test_an_evaluation_of_rows_that_training_pads_with_is_not_trained_on(loop):
    loop.read(rows(4))
    _, batches = loop.read([*rows(6), *rows(1)])
    for batch in batches:
        loop.notes.entered("net", batch[0])
    assert loop.trained() == [(7, 7), (4, 0)]


def test_an_evaluation_is_noted_at_its_end(loop):
    with torch.no_grad():
        loop.read(rows(4))
    assert [each.count for each in loop.events] == [4]


def test_batches_that_are_used_again_are_told_from_rows_of_no_loader(loop):
    _, batches = loop.read(rows(4))
    for batch in (*batches, batches[0], (torch.ones(2, 3), torch.tensor([8, 9]))):
        loop.notes.entered("net", batch[0])
    assert loop.trained() == [(4, 4)]
    assert [(each.kept, each.count) for each in loop.events[1:]] == [("train.py:4", 2), ("", 2)]


def test_a_wrapper_that_was_left_in_evaluation_mode_trains_as_its_module_does():
    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = torch.nn.Linear(1, 1)

        def forward(self, given):
            return self.module(given)

    patches, seen = Patches(), []
    found = SimpleNamespace(
        notes=patches,
        by_module={},
        forward=lambda *_, is_training: seen.append(is_training),
        compare=lambda *_: None,
    )
    _note_calls(found, Wrapper)
    net = Wrapper().eval()
    found.by_module[net] = SimpleNamespace(trains=10**6 + 1)
    net(torch.ones(1, 1))
    net.module.train()  # as Lightning does after a validation
    net(torch.ones(1, 1))
    patches.undo()
    assert seen == [False, True]
