"""Epochs repeat one order."""

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


def test_a_loader_that_is_read_twice_before_the_next_set_epoch_is_right():
    epochs = [
        [epoch(rank, rank + 2, number=each, set_epoch=each // 3, **SHUFFLED) for each in (1, 2, 3, 4)]
        for rank in (0, 1)
    ]
    assert texts(*([MADE, *mine] for mine in epochs)) == []


def stream(number, *rows, **values):
    values = {"num_workers": 1, "is_persistent": True, "dataset": number, **values}
    return epoch(number=number, rows=rows, count=2, is_indexed=False, length=None, **values)


def streamed(*orders, **values):
    epochs = [stream(number, *order, **values) for number, order in enumerate(orders, 1)]
    others = [
        stream(number, *(10 + row for row in order), **values) for number, order in enumerate(orders, 1)
    ]
    return texts([MADE, *epochs], [MADE, *others])


def test_persistent_workers_that_miss_a_change_of_the_data_set_are_named():
    assert streamed((1, 2), (1, 2)) == [
        "Epochs 1 and 2 drew the same order on every rank, though the data set was changed between them"
    ]


def test_workers_that_see_the_change_are_right():
    assert streamed((1, 2), (2, 1)) == []


def test_a_stream_that_nobody_changed_is_right():
    assert streamed((1, 2), (1, 2), dataset=5) == []


def test_workers_that_end_with_each_epoch_are_right():
    assert streamed((1, 2), (1, 2), is_persistent=False) == []
