"""The samples of all ranks: names that mean the same on each, how often each came, and in which words."""

from dataclasses import replace

import pytest
from rankevents import epoch

from dpdemo.ranks.samplereport import coverage, read_for_all, renumbered, samples_of
from dpdemo.results.ranksamples import coverage_line, names_text, trace


def stream(*rows, **values):
    values = {"sizes": (len(rows),), **values}
    return epoch(rows=rows, count=len(rows), is_indexed=False, length=None, **values)


def line(*ranks):
    (found, *_) = coverage([[each] for each in ranks])
    return coverage_line(found).partition(": ")[2]


def test_each_sample_once():
    assert (
        line(epoch(0, 2, length=4), epoch(1, 3, length=4))
        == "4 drawn from 4 samples: each once, none left out"
    )


def test_the_words_count_how_often_samples_came():
    drawn = epoch(0, 0, 1, 1, length=3), epoch(0, 0, 1, length=3)
    assert line(*drawn) == "7 drawn from 3 samples: 1 four times, 1 three times, 1 never (2)"


def test_a_stream_has_no_length_of_its_own():
    assert line(stream(5, 6), stream(7, 8)) == "4 drawn from 4 distinct rows: each once, length unknown"


def test_rows_of_another_epoch_are_known_to_be_left_out():
    ranks = [[stream(5, 6), stream(5, 9, number=2)], [stream(7, 8), stream(7, 8, number=2)]]
    (found,) = coverage(ranks)
    assert (found.length, found.num_left_out) == (5, 1)


def test_sets_that_each_rank_made_are_one_set():
    first = epoch(0, 1, rows=(10, 11), contents=1, dataset=1, length=2)
    second = epoch(0, 1, rows=(12, 10), contents=2, dataset=2, length=2)
    (found,) = coverage([[first], [second]])
    assert (found.drawn, found.length, found.num_repeated, found.num_left_out) == (4, 3, 1, 0)


def test_a_set_whose_samples_are_changed_at_random_is_one_set():
    first = [epoch(0, 1, rows=(10, 11)), epoch(0, 1, rows=(20, 21), number=2)]
    second = [epoch(0, 1, rows=(12, 13)), epoch(0, 1, rows=(22, 23), number=2)]
    (found,) = coverage([first, second])
    assert found.times == {2: 2}


def test_what_one_rank_reads_for_all_has_indices():
    read = epoch(0, 1, 2, 3, rows=(10, 11, 12, 13), is_inner=True, length=4)
    ranks = [[stream(10, 11), read], [stream(12, 13)]]
    (found,) = coverage(ranks)
    assert coverage_line(found) == "Epoch 1, all ranks: 4 drawn from 4 samples: each once, none left out"
    (samples,) = samples_of(ranks[1], read_for_all(ranks))
    assert samples.passes[0].batches == ((2, 3),)


def test_rows_that_were_not_trained_on_are_counted_apart():
    first = epoch(0, 1, 2, length=6, trained=2, used=(0, 2))
    drawn, trained = coverage([[first], [epoch(3, 4, 5, length=6)]])
    assert (drawn.num_left_out, trained.num_left_out, trained.left_out) == (0, 1, (1,))


def test_nothing_is_left_out_of_an_epoch_that_was_left_early():
    found = line(epoch(0, is_complete=False, length=9), epoch(1, length=9))
    assert found == "2 drawn from 2 distinct samples: each once, left before its end"


def test_the_first_whole_epoch_is_counted_before_one_that_was_left():
    ranks = [[epoch(rank, is_complete=False), epoch(rank, number=2, length=2)] for rank in (0, 1)]
    (found,) = coverage(ranks)
    assert found.of == "Epoch 2"


@pytest.mark.parametrize(
    ("names", "text"),
    [((0, 1, 2, 3), "0–3"), ((8, 9, 0), "8, 9, 0"), (("#a", "5", "6", "7"), "#a, 5–7"), ((), "")],
)
def test_samples_are_written_in_their_order(names, text):
    assert names_text(names) == text


def test_loaders_that_nobody_drew_from_are_not_counted():
    def at(*names):
        return [replace(epoch(0), at=name) for name in names]

    ranks = [at("a:1 (loader 11)", "a:1 (loader 2)"), at("a:1 (loader 2)", "b:1 (loader 3)")]
    assert [[each.at for each in events] for events in renumbered(ranks)] == [
        ["a:1 (loader 2)", "a:1"],
        ["a:1", "b:1"],
    ]


def test_a_sample_is_followed_through_ranks_epochs_batches_and_rows():
    ranks = {0: samples_of([epoch(4, 7, sizes=(1, 1))], {}), 1: samples_of([epoch(7, 5, sizes=(2,))], {})}
    found = trace(ranks, "7")
    assert [(each.rank, each.epoch, each.batch, each.row) for each in found.visits] == [
        (0, 1, 2, 0),
        (1, 1, 1, 0),
    ]
    assert found.is_whole
