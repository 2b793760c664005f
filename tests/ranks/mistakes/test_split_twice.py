"""A data set was split between the ranks twice."""

from rankevents import TRAINED, epoch, texts

SHARD = {"splitter": "BatchSamplerShard", "length": 8, "sizes": (2, 2)}


def own(rank, *drawn, **values):
    rows = tuple(100 * rank + each for each in drawn)
    return epoch(*drawn, rows=rows, dataset=rank + 1, contents=rank + 1, **SHARD | values)


def stream(*rows, **values):
    return epoch(rows=rows, count=len(rows), is_indexed=False, length=None, **values)


def test_a_part_of_each_ranks_own_set_is_named():
    ranks = [[*TRAINED, own(0, 0, 1, 4, 5)], [*TRAINED, own(1, 2, 3, 6, 7)]]
    (found,) = texts(*ranks)
    assert found == (
        "Each rank has a data set of its own, and BatchSamplerShard gives it a part of that: 8 of 16 samples "
        "were left out"
    )


def test_own_sets_that_are_drawn_whole_are_right():
    assert texts([*TRAINED, own(0, *range(8))], [*TRAINED, own(1, *range(8))]) == []


def test_a_set_that_knows_its_ranks_number_is_one_set():
    values = {"rows": (1, 2), "contents": 5, "length": 4, "splitter": "DistributedSampler"}
    first, second = epoch(0, 2, dataset=1, **values), epoch(1, 3, dataset=2, **values | {"rows": (3, 4)})
    assert texts([*TRAINED, first], [*TRAINED, second]) == []


def test_a_stream_that_remembers_its_split_is_named():
    values = {"split": "split_dataset_by_node", "splitter": "DataLoaderDispatcher"}
    (found,) = texts([*TRAINED, stream(1, 2, **values)], [*TRAINED, stream(3, 4, **values)])
    assert found == (
        "The stream was split by split_dataset_by_node, and then by DataLoaderDispatcher: the first rank's "
        "part alone is read"
    )


def test_a_stream_that_is_split_once_is_right():
    values = {"split": "split_dataset_by_node"}
    assert texts([*TRAINED, stream(1, 2, **values)], [*TRAINED, stream(3, 4, **values)]) == []


def cut(first, second, **splits):
    values = {"length": 12, "sizes": (1,), "splitter": next(iter(splits)), "splits": splits}
    return texts([*TRAINED, epoch(*first, **values)], [*TRAINED, epoch(*second, **values)])


def test_an_order_that_two_samplers_cut_is_named():
    (found,) = cut((0, 4, 8), (1, 5, 9), BatchSamplerShard=2, DistributedSampler=2)
    assert found == (
        "DistributedSampler takes a rank's part, and BatchSamplerShard takes a part of that: 6 of 12 samples "
        "were left out"
    )


def test_more_parts_than_ranks_are_named():
    (found,) = cut((0, 4, 8), (1, 5, 9), DistributedSampler=4)
    assert found.startswith("DistributedSampler cuts the order into 4 parts for 2 ranks: 6 of 12")


def test_two_samplers_that_leave_nothing_out_are_right():
    assert cut((0, 2, 4, 6, 8, 10), (1, 3, 5, 7, 9), BatchSamplerShard=2, DistributedSampler=1) == []
    assert cut(tuple(range(0, 12, 2)), tuple(range(1, 12, 2)), Outer=2, DistributedSampler=2) == []
