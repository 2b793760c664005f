"""`set_epoch` was not called."""

from rankevents import MADE, epoch, texts

SHUFFLED = {"sampler": "DistributedSampler", "is_shuffled": True, "is_distributed": True, "length": 4}


def run(first, second, **values):
    epochs = [[epoch(*(rank + 2 * place for place in order), number=number, **SHUFFLED | values)
               for number, order in enumerate((first, second), 1)] for rank in (0, 1)]  # fmt: skip
    return texts(*([MADE, *mine] for mine in epochs))


def test_two_epochs_of_one_order_are_named():
    assert run((0, 1), (0, 1), set_epoch=0) == ["Epochs 1 and 2 drew the same order on every rank"]


def test_epochs_of_other_orders_are_right():
    assert run((0, 1), (1, 0)) == []


def test_a_sampler_that_does_not_shuffle_is_right():
    assert run((0, 1), (0, 1), is_shuffled=False) == []


def test_one_order_under_two_values_of_set_epoch_is_chance():
    epochs = [[epoch(rank, number=each, set_epoch=each, **SHUFFLED) for each in (1, 2)] for rank in (0, 1)]
    assert texts(*([MADE, *mine] for mine in epochs)) == []
