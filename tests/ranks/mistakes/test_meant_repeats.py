"""A sampler repeats samples on purpose."""

from rankevents import TRAINED, epoch, mistakes

REPEATS = {"length": 8, "splitter": "RepeatAugSampler", "repeats": "RepeatAugSampler"}


def test_repeated_augmentation_is_a_note():
    (found,) = mistakes([*TRAINED, epoch(0, 0, 1, **REPEATS)], [*TRAINED, epoch(0, 1, 1, **REPEATS)])
    assert found.kind == "note"
    assert found.text == (
        "RepeatAugSampler repeats samples on purpose: 4 of 6 draws of epoch 1 are repeats, and 6 of 8 "
        "samples were left out"
    )


def test_a_sampler_that_leaves_none_out_is_right():
    values = REPEATS | {"length": 2}
    assert mistakes([*TRAINED, epoch(0, 0, 1, **values)], [*TRAINED, epoch(0, 1, 1, **values)]) == ()


def test_another_sampler_is_right():
    values = REPEATS | {"repeats": ""}
    assert mistakes([*TRAINED, epoch(0, 2, **values)], [*TRAINED, epoch(1, 3, **values)]) == ()
