"""Evaluation counts samples twice."""

from rankevents import epoch, mistakes

from dpdemo.ranks.events import CUT_OFF, Trap

SPLIT = {"was_trained": False, "length": 3, "splitter": "DistributedSampler", "sizes": (2,)}


def test_padding_of_an_evaluation_is_a_note():
    (found,) = mistakes([epoch(0, 2, **SPLIT)], [epoch(1, 0, **SPLIT)])
    assert found.text == "Evaluation drew 4 samples from 3: 1 counts twice in a mean over all ranks"
    assert found.kind == "note"


def test_padding_in_training_is_right():
    values = SPLIT | {"was_trained": True}
    assert mistakes([epoch(0, 2, **values)], [epoch(1, 0, **values)]) == ()


def test_an_even_split_is_right():
    values = SPLIT | {"length": 4}
    assert mistakes([epoch(0, 2, **values)], [epoch(1, 3, **values)]) == ()


def test_padding_that_is_cut_off_after_gathering_is_right():
    cut = Trap(CUT_OFF, "train.py:20")
    assert mistakes([epoch(0, 2, **SPLIT), cut], [epoch(1, 0, **SPLIT), cut]) == ()


def test_each_rank_may_evaluate_all():
    values = SPLIT | {"splitter": ""}
    assert mistakes([epoch(0, 1, 2, **values)], [epoch(0, 1, 2, **values)]) == ()
