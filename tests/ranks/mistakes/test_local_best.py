"""A file is kept by a number of the rank's own."""

from dataclasses import replace

from rankevents import AT, mistakes, texts

from dpdemo.ranks.events import FileWritten, Read


def reads(*values, is_training=False):
    return [Read(AT, n, value, n, "float", is_training) for n, value in enumerate(values, 1)]


def files(*rounds, name="best.pt"):
    return [FileWritten(f"/out/{name}", each, "train.py:12") for each in rounds]


def test_a_best_model_by_one_ranks_number_is_named():
    (found,) = mistakes([*reads(3, 2, 4), *files(1, 2)], reads(3, 5, 1))
    assert found.text.startswith(
        "best.pt was written after 2 of 3 evaluations, by a number of the rank's own"
    )
    assert found.text.endswith("2 on rank 0, 5 on rank 1")
    assert found.at == AT


def test_a_choice_under_another_name_is_named():
    assert texts([*reads(3, 2, 4, 1), *files(1, 2, 4, name="kept.pt")], reads(2, 5, 1, 3))


def test_one_rank_that_evaluates_alone_is_right():
    """As nanoGPT does; all ranks draw their batches at one line, in training and in the evaluation."""
    drawn = [
        [Read("train.py:3", n, float(n * rank), n, "int", n > 2) for n in range(1, 5)] for rank in (1, 2)
    ]
    assert mistakes([*drawn[0], *reads(3, 2, 4), *files(1, 2)], drawn[1]) == ()


def test_numbers_that_were_reduced_are_right():
    assert mistakes([*reads(3, 2, 4), *files(1, 2)], reads(3, 2, 4)) == ()


def test_predictions_beside_a_mean_that_was_reduced_are_right():
    means = [Read("train.py:7", n, value, n, "float", False) for n, value in enumerate((3.0, 2.0, 4.0), 1)]
    rows = [[replace(each, how="numbers") for each in reads(*values)] for values in ((7, 8, 9), (4, 5, 6))]
    saved = files(1, 2)
    assert mistakes([*means, *rows[0], *saved], [*means, *rows[1]]) == ()
    (found,) = mistakes([*rows[0], *saved], rows[1])
    assert found.text.endswith("a number of the rank's own: other lists or arrays on each rank")


def test_a_loss_to_print_is_right():
    mine, theirs = reads(3, 2, 4, is_training=True), reads(2, 3, 1, is_training=True)
    assert mistakes([*mine, *files(1, 2)], theirs) == ()


def test_files_of_each_round_each_second_and_the_last_are_right():
    for rounds in ((1, 2, 3, 4), (2, 4), (4,)):
        saved = files(*rounds, name="last.pt")
        assert mistakes([*reads(3, 2, 4, 1), *saved], reads(2, 5, 1, 3)) == ()
