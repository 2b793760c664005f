"""Ranks average means over different numbers of elements."""

from rankevents import MADE, loss, rows, texts


def run(first, second):
    return texts([MADE, *rows(1), *first], [MADE, *rows(2), *second])


def test_means_over_other_numbers_of_elements_are_named():
    (text,) = run([loss(1, 1.0)], [loss(3, 1 / 3)])
    assert text.startswith("Means over 1 elements on rank 0 and 3 on rank 1 are averaged")
    assert text.endswith("an element of rank 0 weighs 3 times as much")


def test_a_rank_without_elements_is_named_with_0():
    (text,) = run([loss(6, 1 / 6)], [loss(0, 1.0)])
    assert text.startswith("Means over 0 elements on rank 1 and 6 on rank 0 are averaged")


def test_sums_divided_by_all_elements_are_right():
    assert run([loss(1, 0.25)], [loss(3, 0.25)]) == []


def test_equal_numbers_are_right():
    assert run([loss(3, 1 / 3)], [loss(3, 1 / 3)]) == []


def test_a_short_last_batch_alone_is_right():
    first = [loss(4, 0.25, number=number) for number in (1, 2, 3)]
    assert run(first, [*first[:2], loss(1, 1.0, number=3)]) == []
