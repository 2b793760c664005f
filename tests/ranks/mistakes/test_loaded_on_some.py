"""A checkpoint was loaded on some ranks only, and the model was sharded."""

from rankevents import AT, MADE, MODEL, mistakes

from dpdemo.ranks.events import ModelMade, Rows, StateLoaded

NAME = "fully_shard on [0, 1] #1"
SHARDED = [ModelMade(NAME, "Net", "fully_shard", (0, 1), "train.py:4"), Rows(NAME, 1, 4, AT)]
LOADED = StateLoaded(AT, 1, 4, 4, 4)


def test_a_rank_that_loaded_nothing_is_named():
    (found,) = mistakes([LOADED, *SHARDED], SHARDED)
    assert found.text.startswith("Rank 0 loaded a checkpoint and rank 1 none")
    assert found.at == AT


def test_a_checkpoint_on_every_rank_is_right():
    assert mistakes([LOADED, *SHARDED], [LOADED, *SHARDED]) == ()


def test_distributed_data_parallel_sends_it_to_the_others():
    assert mistakes([LOADED, MADE, Rows(MODEL, 1, 4, AT)], [MADE, Rows(MODEL, 2, 4, AT)]) == ()
