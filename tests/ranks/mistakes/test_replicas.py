"""No gradient was averaged, or replicas differ."""

from dataclasses import replace

from rankevents import AT, MADE, MODEL, mistakes, parameters

from dpdemo.ranks.events import Unsynced


def run(*first_and_second, **values):
    return mistakes(*([MADE, *parameters(*sums), *values.get("more", ())] for sums in first_and_second))


def test_replicas_that_differ_from_some_step_to_the_end_are_named():
    (found,) = run((1, 2, 3), (1, 2, 4))
    assert found.text == "The parameters differ between ranks after step 2"
    assert found.at == AT


def test_replicas_that_differ_at_once_are_named():
    (found,) = run((1, 2), (3, 4))
    assert found.text == "The parameters differ between ranks before step 1"
    assert found.advice.startswith("load a checkpoint on every rank")


def test_replicas_that_become_equal_again_are_right():
    assert run((1, 2, 3), (1, 4, 3)) == ()


def test_equal_replicas_are_right():
    assert run((1, 2, 3), (1, 2, 3)) == ()


def test_a_step_without_averaging_is_named_with_the_call_that_went_past_the_wrapper():
    (found,) = run((1, 2), (1, 3), more=[Unsynced(MODEL, AT, "train.py:7")])
    assert found.text == "No gradient was averaged; the parameters differ between ranks after step 1"
    assert (found.at, "`.module`" in found.advice) == ("train.py:7", True)


def test_unused_parameters_are_the_advice():
    (found,) = run((1, 2), (1, 3), more=[Unsynced(MODEL, AT, unused=("head.bias",))])
    assert found.advice == "no gradient reached head.bias: find_unused_parameters=True"


def test_parameters_that_came_later_are_the_advice():
    before, after = parameters(1, 2)
    late = replace(after, added=("head.bias",))
    (found,) = mistakes([MADE, before, late], [MADE, before, replace(late, sum=9)])
    assert found.advice.startswith("head.bias came after the model was wrapped")
