"""Several ranks wrote one file."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import FileWritten


def test_a_file_that_two_ranks_write_between_the_same_collectives_is_named():
    noted = [FileWritten("/tmp/out/model.pt", 4, AT)]  # noqa: S108 - a name
    (found,) = mistakes(noted, noted)
    assert (found.text, found.at) == ("2 ranks wrote model.pt", AT)


def test_files_with_a_collective_in_between_are_right():
    assert mistakes([FileWritten("a", 4, AT)], [FileWritten("a", 5, AT)]) == ()


def test_a_file_for_each_rank_is_right():
    assert mistakes([FileWritten("a0", 4, AT)], [FileWritten("a1", 4, AT)]) == ()
