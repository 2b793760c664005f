"""The wrapper was gone before `backward()`."""

from rankevents import AT, MADE, MODEL, mistakes, parameters

from dpdemo.ranks.events import WrapperGone


def test_a_backward_pass_after_the_wrapper_is_named_once():
    noted = [MADE, *parameters(1, 2), WrapperGone(MODEL, AT)]
    (found,) = mistakes(noted, [MADE, *parameters(1, 3), WrapperGone(MODEL, AT)])
    assert found.text == "No gradient was averaged: the wrapper made at train.py:4 was gone before backward"
    assert found.at == AT


def test_a_wrapper_that_stays_is_right():
    assert mistakes([MADE], [MADE]) == ()
