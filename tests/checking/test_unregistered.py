"""Which errors in a replica come of its having no parameters."""

import pytest

from dpdemo.checking.evidence import Call, Event, Leaf, Probe, RaisedError, Single
from dpdemo.checking.questions.arguments import packed_arguments
from dpdemo.checking.questions.failures import comes_of_no_parameters, questions_for_parameters
from dpdemo.results.findings import Place

LINE = "every = list(self.parameters())"


def called(code, kind="named_parameters"):
    place = Place(__file__, 1, "forward", code)
    return Call(2, 0, (), events=(Event(kind, 0, "Model", place),))


def raised(kind, message, place=None):
    return RaisedError("replica", kind, message, 0, (place,) if place else ())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ValueError", "not enough values to unpack (expected 4, got 0)"),
        ("ValueError", "max() arg is an empty sequence"),
        ("RuntimeError", "stack expects a non-empty TensorList"),
    ],
)
def test_an_error_that_says_there_is_nothing_comes_of_it_wherever_it_is_raised(kind, message):
    assert comes_of_no_parameters(raised(kind, message), called(LINE))


@pytest.mark.parametrize("code", ["y = self.encoder(x)", "return helper(self, x)"])
def test_a_line_that_does_not_ask_itself_is_not_to_blame(code):
    error = raised("RuntimeError", "stack expects a non-empty TensorList")
    assert not comes_of_no_parameters(error, called(code))


def test_an_index_that_is_out_of_range_elsewhere_is_not_to_blame():
    assert not comes_of_no_parameters(raised("IndexError", "index 5 is out of bounds"), called(LINE))


def test_setting_gradients_to_zero_is_no_question():
    assert not questions_for_parameters(called("self.fc.zero_grad()"))
    assert len(questions_for_parameters(called("self.fc.state_dict()", "state_dict"))) == 1


def test_labels_that_add_up_to_a_number_for_each_gpu_pack_nothing():
    """As `num_items_in_batch` of transformers' Trainer beside labels."""
    labels = Leaf("labels", "Tensor", (3,), dtype="int64", adds_up_to=(2, 1), climb=(1, 1))
    number = Leaf("num_items_in_batch", "Tensor", (2, 1), dtype="int64", repeated=True)
    call = Call(2, 0, (Leaf("ids", "Tensor", (3, 6)), labels, number), planned=3)
    probe = Probe(3, "train", is_real=True, single=Single((Leaf("logits", "Tensor", (3, 3)),)), calls=(call,))
    assert packed_arguments(probe, call) == ([], [])
