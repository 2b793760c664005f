"""An epoch had no batch."""

from rankevents import epoch, texts


def empty(number=1, **values):
    return epoch(number=number, **{"length": 3, **values})


def test_a_whole_epoch_without_a_batch_is_named():
    assert texts([empty()], [empty()]) == [
        "Epoch 1 had no batch on any rank, though the data set has 3 samples"
    ]


def test_a_stream_that_is_used_up_is_named():
    first = epoch(rows=(1, 2), is_indexed=False, count=2)
    second = epoch(number=2, length=None, is_indexed=False)
    assert texts([first, second], [first, second]) == ["Epoch 2 had no batch on any rank"]


def test_an_empty_data_set_is_right():
    assert texts([empty(length=0)], [empty(length=0)]) == []


def test_an_epoch_that_one_rank_made_is_right():
    assert texts([empty()], [epoch(0, length=3)]) == []


def test_the_skipped_rest_of_an_epoch_is_right():
    skipped = empty(samplers=("SkipBatchSampler", "RandomSampler"))
    assert texts([skipped], [skipped]) == []
