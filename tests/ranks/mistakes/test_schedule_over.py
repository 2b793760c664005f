"""The learning rate schedule was over after a part of the steps."""

from rankevents import AT, texts

from dpdemo.ranks.events import Scheduled


def run(**values):
    noted = Scheduled(**{"at": AT, "name": "LambdaLR", "optimizer": "SGD", "steps": 16, "calls": 16} | values)
    return texts([noted], [noted])


def test_a_schedule_stepped_once_per_rank_is_named():
    (text,) = run(calls=32, still=8)
    assert text.startswith("The learning rate was at its end, 0, in the last 8 of 16 steps")
    assert "made 32 steps in 16 steps" in text


def test_a_schedule_made_for_half_of_the_steps_is_named():
    assert run(still=8)
    (text,) = run(name="CosineAnnealingLR", period=8)
    assert text.startswith("CosineAnnealingLR has a schedule of 8 calls, and got 16")
    assert text.endswith("was made for fewer steps than each rank makes")


def test_a_schedule_that_ends_with_the_run_is_right():
    assert run(still=1) == []
    assert run(period=16) == []


def test_a_rate_that_stays_low_but_above_zero_is_right():
    assert run(still=8, last=0.001) == []


def test_a_schedule_that_never_changed_is_right():
    assert run(calls=32) == []
