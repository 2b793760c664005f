"""The hyperparameters of an optimizer differ between ranks."""

from rankevents import AT, MADE, mistakes, parameters

from dpdemo.ranks.events import Hyperparameters, Metric, Read


def rates(*values, ranks=(0, 1)):
    steps = tuple(range(1, len(values) + 1))
    return Hyperparameters("SGD at train.py:9 #1", ranks, AT, steps, tuple({"lr": value} for value in values))


def test_the_first_step_with_another_learning_rate_is_named():
    (found,) = mistakes([rates(0.5, 0.5, 0.25)], [rates(0.5, 0.5, 0.125)])
    assert found.text == (
        "The learning rate differs between ranks from step 3 on: 0.25 on rank 0, 0.125 on rank 1"
    )
    assert found.at == AT


def test_the_number_that_decided_is_named_with_its_line():
    metrics = [Metric("train.py:20", 1, value) for value in (0.5, 0.75)]
    reads = [Read("train.py:18", 1, value, 4, "float", is_training=False) for value in (2.0, 3.0)]
    (found,) = mistakes(*([rates(value), metric, read] for value, metric, read in
                          zip((0.5, 0.25), metrics, reads, strict=True)))  # fmt: skip
    assert "ReduceLROnPlateau got another number on each rank: 0.5 on rank 0, 0.75 on rank 1" in found.text
    assert (found.at, "read at train.py:18" in found.advice) == ("train.py:20", True)


def test_a_number_of_the_ranks_own_is_named_even_while_the_rates_are_equal():
    (found,) = mistakes(*([rates(0.5), Metric("train.py:20", 1, value)] for value in (0.5, 0.75)))
    assert found.text == "ReduceLROnPlateau got another number on each rank: 0.5 on rank 0, 0.75 on rank 1"


def test_replicas_that_differ_for_this_reason_are_not_named_twice():
    noted = [[MADE, *parameters(*sums), rates(lr)] for sums, lr in (((1, 2), 0.5), ((1, 3), 0.25))]
    (found,) = mistakes(*noted)
    assert found.text.startswith("The learning rate differs")


def test_equal_schedules_are_right():
    assert mistakes([rates(0.5, 0.25)], [rates(0.5, 0.25)]) == ()


def test_ranks_that_train_apart_are_right():
    assert mistakes([rates(0.5, ranks=())], [rates(0.25, ranks=())]) == ()
