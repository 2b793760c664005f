"""A call gives wrong numbers on several ranks, by its arguments."""

import pytest
from rankevents import AT, mistakes

from dpdemo.ranks.events import Trap


@pytest.mark.parametrize(
    ("kind", "detail", "words"),
    [
        (
            "sharded-loss",
            "mse_loss",
            "F.mse_loss of sharded DTensors: the mean is right, its gradient is 2 times",
        ),
        ("sharded-convolution", "", "height or width is sharded"),
        ("filled-sum", "", "counts once for each of 2 ranks"),
        ("reduced-by", "MAX", "all_reduce by MAX is not that of MAX"),
        ("reduced-before-gathering", "", "gather_for_metrics got one number for the last batch"),
        ("unsorted-mesh", "[1, 0]", "A DeviceMesh of ranks [1, 0]"),
        ("empty-group", "1", "never trains 1 of its groups"),
        ("rescaled-gradients", "4", "the gradients of the steps before it by 4"),
        ("statistics-of-shapes", "", "BatchNorm has statistics of no real rows"),
        ("converted-norm", "BatchNormAct2d", "in the place of BatchNormAct2d, whose own forward is lost"),
        ("kept-gradients", "", "does not clear the gradients that fully_shard has not reduced: the next"),
        ("no-values", "0.weight, 1.bias", "to_empty left 0.weight, 1.bias without values"),
        ("untied", "embed.weight and out.weight", "own of embed.weight and out.weight, which were one"),
        (
            "uneven-microbatches",
            "6 rows in 4 micro-batches",
            "6 rows in 4 micro-batches do not come out even",
        ),
    ],
)
def test_each_kind_is_named_once(kind, detail, words):
    (found,) = mistakes([Trap(kind, AT, detail)], [Trap(kind, AT, detail)])
    assert words in found.text
    assert found.at == AT


def test_no_such_call_is_right():
    assert mistakes([], []) == ()
