"""BatchNorm is not synced."""

from rankevents import MADE, MODEL, mistakes, rows

from dpdemo.ranks.events import Statistics


def run(first, second, second_step=1):
    return mistakes(
        [MADE, *rows(1), Statistics(MODEL, 1, {"bn": first})],
        [MADE, *rows(2), Statistics(MODEL, second_step, {"bn": second})],
    )


def test_statistics_that_differ_are_a_note_at_the_model():
    (found,) = run((0.5, 1.0), (0.25, 1.0))
    assert (found.text, found.kind, found.at) == (
        "BatchNorm `bn` is not synced: running statistics differ by up to 0.25", "note", MADE.at
    )  # fmt: skip


def test_equal_statistics_are_right():
    assert run((0.5, 1.0), (0.5, 1.0)) == ()


def test_round_off_is_right():
    assert run((0.5,), (0.5000001,)) == ()


def test_other_steps_are_not_compared():
    assert run((0.5,), (0.25,), second_step=2) == ()
