"""Each worker of a loader reads the whole stream."""

from rankevents import MADE, epoch, texts


def stream(*rows, **values):
    values = {"num_workers": 2, **values}
    return epoch(rows=rows, count=len(rows), is_indexed=False, length=None, **values)


def run(*ranks, **values):
    return texts(*([MADE, stream(*rows, **values)] for rows in ranks))


def test_rows_that_come_once_from_each_worker_are_named():
    assert run((1, 2, 1, 2), (3, 4, 3, 4)) == [
        "All 2 workers of each rank read the whole stream: each row comes 2 times"
    ]


def test_one_rank_alone_is_named_too():
    assert run((1, 2, 1, 2), (3, 4)) == [
        "All 2 workers of rank 0 read the whole stream: each row comes 2 times"
    ]


def test_streams_that_workers_share_are_right():
    assert run((1, 2), (3, 4)) == []


def test_alike_rows_are_right():
    assert run((1, 1, 1, 1), (1, 1, 1, 1)) == []


def test_some_alike_rows_are_right():
    assert run((1, 2, 1), (3, 4, 5)) == []


def test_indices_are_never_doubled_by_workers():
    drawn = epoch(0, 1, 0, 1, num_workers=2, length=2, repeats="WeightedRandomSampler")
    assert texts([drawn], [drawn]) == []
