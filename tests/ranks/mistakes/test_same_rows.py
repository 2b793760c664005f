"""All ranks trained on the same rows."""

from rankevents import MADE, epoch, rows, texts


def test_equal_rows_that_change_from_step_to_step_are_named():
    noted = [MADE, *rows(5, 6)]
    assert texts(noted, noted) == ["All 2 ranks trained on the same rows in each of 2 steps"]


def test_rows_that_never_change_may_be_constants():
    assert texts([MADE, *rows(5, 5)], [MADE, *rows(5, 5)]) == []


def test_other_rows_on_each_rank_are_right():
    assert texts([MADE, *rows(5, 6)], [MADE, *rows(7, 8)]) == []


def test_where_a_loader_has_indices_they_judge():
    assert texts([MADE, *rows(5, 6), epoch(0)], [MADE, *rows(5, 6), epoch(1)]) == []
