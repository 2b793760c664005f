"""Ranks that average gradients themselves have different parameters."""

from dataclasses import replace

from rankevents import MADE, MODEL, epoch, parameters, rows, texts

from dpdemo.ranks.events import ByHand


def run(first, second, *more, **values):
    made = ByHand(MODEL, (0, 1), **values)
    return texts(*([made, *parameters(*sums), *more] for sums in (first, second)))


def test_parameters_that_differ_from_the_start_are_named():
    assert run((1, 2), (3, 4), all=2) == [
        "The parameters differ between ranks from the start, although gradients are averaged"
    ]


def test_parameters_that_differ_later_are_named():
    assert run((1, 2), (1, 4), some=1) == ["The parameters differ between ranks after step 1"]


def test_gradients_that_nobody_averages_are_named_beside_a_distributed_sampler():
    drawn = epoch(0, 1, is_distributed=True)
    assert run((1, 2), (1, 4), drawn, none=1, is_alone=True)[0] == (
        "No gradient was averaged; the parameters differ between ranks after step 1"
    )


def test_a_model_that_is_not_wrapped_beside_one_that_is_drifts():
    def of_generator(first, second):
        made = ByHand("stepped at train.py:7 on [0, 1] #1", (0, 1), none=1, is_alone=True)
        sums = [[replace(each, model=made.model) for each in parameters(*mine)] for mine in (first, second)]
        more = [[epoch(rank, is_distributed=True, length=2), MADE, *rows(rank)] for rank in (0, 1)]
        return texts(*([made, *mine, *others] for mine, others in zip(sums, more, strict=True)))

    assert of_generator((1, 2), (1, 4)) == [
        "No gradient of this optimizer was averaged; the parameters differ between ranks after step 1"
    ]
    assert of_generator((1, 2), (3, 4)) == []  # each rank's own, such as personal heads
    assert of_generator((1, 2), (1, 2)) == []


def test_a_model_of_each_rank_alone_is_right():
    assert run((1, 2), (3, 4)) == []  # its steps had no gradients
    assert run((1, 2), (3, 4), none=2, is_alone=True) == []


def test_averaged_parameters_are_right():
    assert run((1, 2), (3, 4), all=2, is_local=True) == []


def test_shards_of_each_rank_are_right():
    assert run((1, 2), (3, 4), all=2, is_sharded=True) == []


def test_experts_of_each_rank_are_right():
    assert run((1, 2), (1, 4), some=1, sends_rows=True) == []


def test_equal_parameters_are_right():
    assert run((1, 2), (1, 2), all=2) == []


def test_parameters_beside_a_wrapped_model_are_named():
    (text,) = run((1, 2), (1, 4), none=2, is_beside=True, shapes=("[3, 4] (0)",))
    assert text.startswith(
        "The parameters differ between ranks after step 1: the optimizer also has parameters of"
    )
    assert "shape [3, 4]" in text


def test_parameters_beside_a_wrapped_model_that_are_reduced_are_right():
    assert run((1, 2), (1, 2), all=2, is_beside=True) == []
    assert run((1, 2), (3, 4), none=2, is_beside=True) == []  # each rank's own, such as experts
