"""A part of PyTorch that is not observed is named once for all ranks."""

from rankevents import TRAINED, mistakes

from dpdemo.ranks.events import Unobserved

MOVED = Unobserved(
    "a backward pass begins", "AttributeError: module 'torch.autograd' has no attribute 'backward'"
)


def test_a_part_that_is_not_observed_is_a_note():
    (note,) = mistakes([MOVED, *TRAINED], [MOVED, *TRAINED])
    assert note.kind == "note"
    assert note.text == f"Not observed: {MOVED.what} ({MOVED.error})"


def test_nothing_is_noted_if_all_is_observed():
    assert mistakes(TRAINED, TRAINED) == ()
