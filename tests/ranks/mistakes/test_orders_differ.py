"""Ranks take their parts of different orders."""

from rankevents import TRAINED, epoch, mistakes, texts

SPLIT = {"length": 8, "samplers": ("DistributedSampler",), "splitter": "DistributedSampler", "seed": 0}
SHARD = SPLIT | {"samplers": ("BatchSamplerShard", "Buckets"), "splitter": "BatchSamplerShard", "seed": None}


def run(first, second, **values):
    return texts([*TRAINED, epoch(*first, **SPLIT | values)], [*TRAINED, epoch(*second, **SPLIT | values)])


def test_seeds_that_differ_between_ranks_are_named():
    ranks = [
        [*TRAINED, epoch(*drawn, **SPLIT | {"seed": seed})]
        for drawn, seed in (((0, 1, 2, 3), 0), ((3, 4, 5, 6), 7))
    ]
    (found,) = texts(*ranks)
    assert found == (
        "Epoch 1 drew 1 sample twice and left 1 out of 8: the seeds of DistributedSampler differ between "
        "ranks (0 and 7)"
    )


def test_a_sampler_of_ones_own_is_named():
    (found,) = run((0, 1, 2, 3), (2, 3, 4, 5), **SHARD)
    assert found == (
        "Epoch 1 drew 2 samples twice and left 2 out of 8: Buckets makes another order on each rank, of "
        "which BatchSamplerShard takes one rank's part"
    )


def test_other_numbers_in_set_epoch_are_named():
    ranks = [
        [*TRAINED, epoch(*drawn, set_epoch=number, **SPLIT)] for drawn, number in (((0, 1), 0), ((1, 2), 1))
    ]
    assert texts(*ranks) == [
        "Epoch 1 drew 1 sample twice and left 5 out of 8: set_epoch got other numbers on each rank (0 and 1)"
    ]


def by_themselves(sampler):
    values = {"length": 8, "samplers": (sampler,)}
    return mistakes(*([*TRAINED, epoch(*drawn, **values)] for drawn in ((0, 1, 2, 3), (3, 4, 5, 6))))


def test_ranks_that_draw_at_random_by_themselves_are_a_note():
    assert [each.kind for each in by_themselves("RandomSampler")] == ["note"]


def test_a_sampler_that_gives_each_rank_its_share_of_another_order_is_named():
    (found,) = by_themselves("Resumed")
    assert (found.kind, found.text.endswith("each rank draws by itself with Resumed")) == ("mistake", True)
    assert "when it is resumed" in found.advice


def test_a_subset_that_is_another_one_on_each_rank_is_named():
    drawn = ((0, 2, 4), 1), ((2, 3, 5), 2)
    ranks = [[*TRAINED, epoch(*each, part=(6, part), **SPLIT)] for each, part in drawn]
    (found,) = mistakes(*ranks)
    assert "the Subset that DistributedSampler cuts has other samples on each rank" in found.text
    assert found.advice.startswith("split it alike on all ranks: random_split")


def test_padding_of_a_part_of_the_data_set_is_right():
    assert run((0, 2), (5, 0), part=(3, 7)) == []


def test_padding_is_right():
    assert run((0, 2, 4, 6), (1, 3, 5, 0), length=7) == []


def test_dropping_is_right():
    assert run((0, 2), (1, 3)) == []


def test_an_epoch_that_was_left_is_not_judged():
    assert run((0, 1), (1, 2), is_complete=False) == []


def test_a_sampler_with_replacement_is_right():
    assert run((0, 1, 1, 3), (1, 4, 5, 6)) == []
