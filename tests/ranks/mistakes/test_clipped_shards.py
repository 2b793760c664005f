"""Each rank clipped its shards by a norm of its own."""

from rankevents import AT, MADE, mistakes

from dpdemo.ranks.events import Clipped


def test_norms_that_differ_are_named():
    (found,) = mistakes([MADE, Clipped(AT, 1, 2.0)], [MADE, Clipped(AT, 1, 3.0)])
    assert found.text == (
        "Gradients are clipped by the norm of each rank's own shards: 2 on rank 0, 3 on rank 1"
    )


def test_equal_norms_are_right():
    assert mistakes([MADE, Clipped(AT, 1, 2.0)], [MADE, Clipped(AT, 1, 2.0)]) == ()
