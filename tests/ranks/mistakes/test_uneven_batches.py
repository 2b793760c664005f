"""Ranks drew unequal numbers of batches."""

from rankevents import TRAINED, epoch, texts


def run(**values):
    first = epoch(0, 1, 2, sizes=(1, 1, 1), trained=3, length=5, **values)
    second = epoch(3, 4, sizes=(1, 1), trained=2, length=5, **values)
    return texts([*TRAINED, first], [*TRAINED, second])


def test_unequal_numbers_of_batches_are_named():
    assert run() == ["Epoch 1 had 3 batches on rank 0 and 2 on rank 1"]


def test_ranks_that_join_are_right():
    assert run(is_joined=True) == []


def test_an_epoch_that_was_left_is_not_judged():
    assert run(is_complete=False) == []


def test_batches_that_were_not_trained_on_are_right():
    first = epoch(0, 1, 2, sizes=(1, 1, 1), trained=2, length=5)
    assert texts([*TRAINED, first], [*TRAINED, epoch(3, 4, sizes=(1, 1), trained=2, length=5)]) == []


def test_batches_of_other_sizes_are_right():
    first = epoch(0, 1, 2, sizes=(2, 1), trained=3, length=5)
    assert texts([*TRAINED, first], [*TRAINED, epoch(3, 4, sizes=(1, 1), trained=2, length=5)]) == []
