"""All ranks drew the same samples."""

from dataclasses import replace

from rankevents import MADE, epoch, loss, rows, texts

from dpdemo.ranks.events import SameRows


def run(*epochs, used=16, drawn=(16, 4), ranks=2):
    return texts(*([MADE, *rows(1, 2, number=used, drawn=drawn), *epochs],) * ranks)


def test_a_loader_that_every_rank_draws_whole_is_named():
    assert run(epoch(0, 1, 2, 3)) == ["Each of 2 ranks drew all 4 samples: an epoch is 2 epochs"]


def test_a_short_last_batch_is_no_share_of_a_batch():
    """Of 6 samples in batches of 4, the last batch is half as large."""
    noted = [MADE, *rows(1, drawn=(16, 4)), *rows(2, number=8, drawn=(8, 2)), epoch(*range(6))]
    assert texts(noted, noted) == ["Each of 2 ranks drew all 6 samples: an epoch is 2 epochs"]


def test_other_orders_of_all_samples_are_named_too():
    assert texts([MADE, *rows(1), epoch(0, 1, 2)], [MADE, *rows(2), epoch(2, 0, 1)]) == [
        "Each of 2 ranks drew all 3 samples: an epoch is 2 epochs"
    ]


def test_ranks_that_each_take_their_share_of_a_batch_are_right():
    assert run(epoch(0, 1, 2, 3), used=8) == []


def test_ranks_that_take_a_share_in_the_loss_are_right():
    noted = [MADE, loss(2, 0.5), epoch(0, 1, 2, 3)]
    noted[1] = type(noted[1])(**{**vars(noted[1]), "drawn": (16, 4)})
    assert texts(noted, noted) == []


def test_disjoint_samples_are_right():
    assert texts([MADE, *rows(1), epoch(0, 2)], [MADE, *rows(2), epoch(1, 3)]) == []


def test_shards_with_the_same_indices_are_right():
    assert texts([MADE, *rows(1), epoch(0, 1, dataset=1)], [MADE, *rows(2), epoch(0, 1, dataset=2)]) == []


def test_ranks_that_tensor_parallelism_joins_draw_the_same_rows():
    whole = MADE, *rows(1, 2), epoch(0, 1, 2, 3)
    assert texts([SameRows((0, 1)), *whole], [SameRows((0, 1)), *whole]) == []


def test_of_two_pairs_that_tensor_parallelism_joins_each_has_samples_of_its_own():
    def noted(ranks, *indices):
        return [replace(MADE, ranks=[0, 1, 2, 3]), SameRows(ranks), *rows(1, 2), epoch(*indices)]

    assert texts(*[noted((0, 1), 0, 2)] * 2, *[noted((2, 3), 1, 3)] * 2) == []
    assert texts(*[noted((0, 1), 0, 1)] * 2, *[noted((2, 3), 0, 1)] * 2) == [
        "Each of 2 ranks drew all 2 samples: an epoch is 2 epochs"
    ]


def test_an_epoch_of_evaluation_is_left_alone():
    tested = epoch(0, 1, 2, 3, was_trained=False)
    assert texts([MADE, *rows(1), tested], [MADE, *rows(2), tested]) == []


def streamed(first, second, **values):
    ranks = [
        [MADE, *rows(1, 2), epoch(rows=mine, count=len(mine), is_indexed=False, length=None, **values)]
        for mine in (first, second)
    ]
    return texts(*ranks)


def test_a_stream_that_every_rank_reads_whole_is_named():
    assert streamed((5, 6, 7), (5, 6, 7)) == ["Each of 2 ranks drew the same 3 rows: an epoch is 2 epochs"]


def test_streams_of_other_rows_are_right():
    assert streamed((5, 6), (7, 8)) == []


def test_rows_that_are_all_alike_tell_nothing():
    assert streamed((5, 5), (5, 5)) == []


def test_ranks_that_train_on_other_rows_of_the_same_batches_are_right():
    first, second = epoch(0, 1, trained=1, used=(0,)), epoch(0, 1, trained=1, used=(1,))
    assert texts([MADE, *rows(1), first], [MADE, *rows(2), second]) == []


def test_a_sampler_that_repeats_on_purpose_is_right():
    values = {"repeats": "RepeatAugSampler", "splitter": "RepeatAugSampler"}
    noted = [MADE, *rows(1), epoch(0, 1, 2, **values)]
    assert texts(noted, noted) == []
