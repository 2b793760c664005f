"""Ranks made other folders or files by a name of their own."""

import pytest
from rankevents import AT, mistakes

from dpdemo.ranks.events import Checkpoint, PathMade


def run(*paths, is_folder=True, by_chance=False):
    return mistakes(*([PathMade(AT, 1, path, is_folder, by_chance)] for path in paths))


def test_folders_named_by_the_time_are_named():
    (found,) = run("/out/run-120133", "/out/run-120134")
    assert found.text == "Each rank made a path of its own: run-120133 on rank 0, run-120134 on rank 1"
    assert found.at == AT


def test_files_named_by_chance_are_named():
    assert run("/out/4242.pt", "/out/4243.pt", is_folder=False, by_chance=True)
    assert run("/out/3f9a01bc.pt", "/out/77d0ee12.pt", is_folder=False)


def test_other_checkpoints_are_named():
    assert mistakes([Checkpoint(AT, 1, "/a17", {})], [Checkpoint(AT, 1, "/a43", {})])


@pytest.mark.parametrize(
    "paths",
    [
        ("/out/rank0", "/out/rank1"),
        ("/out/rank_1", "/out/rank_2"),
        ("/out/main", "/out/helper"),
        ("/out/all", "/out/all"),
    ],
)
def test_names_with_the_rank_or_a_word_are_right(paths):
    assert run(*paths) == ()


def test_a_file_for_each_sample_is_right():
    files = [[PathMade(AT, n, f"/out/{name}.png") for n, name in enumerate(names, 1)]
             for names in ((10, 22), (17, 35))]  # fmt: skip
    assert mistakes(*files) == ()


def test_a_folder_for_each_sample_is_right():
    folders = [[PathMade(AT, n, f"/out/{name}", True) for n, name in enumerate(names, 1)]
               for names in ((1010, 2210), (1717, 3523))]  # fmt: skip
    assert mistakes(*folders) == ()


def test_a_file_inside_a_folder_that_was_named_is_not_named_again():
    noted = [
        [
            PathMade(AT, 1, f"/run-{pid}", True, True),
            PathMade("train.py:12", 1, f"/run-{pid}/part.pt", False, True),
        ]
        for pid in (41, 57)
    ]
    assert len(mistakes(*noted)) == 1
