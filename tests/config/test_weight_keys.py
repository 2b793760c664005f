"""The keys of unequal splits: their forms, and combinations that are refused."""

import pytest

from dpdemo.config.load import load_config, make_config
from dpdemo.config.numbers import parse_numbers
from dpdemo.config.weights import split_of
from dpdemo.errors import UsageError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1,2,2", (1, 2, 2)), ("0.5, 1x3", (0.5, 1, 1, 1)), ("7", (7,)), ("-1,2", (-1, 2))],
)
def test_numbers_are_read_from_a_command_line(text, numbers):
    assert parse_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "1,,2", "1,b", "2x0", "2x1.5", "1x99999999", "2x-1", "x3"])
def test_a_wrong_number_is_an_error_with_an_example(text):
    with pytest.raises(UsageError, match="expected a number for each GPU, got") as caught:
        parse_numbers(text)
    assert "1,2x7" in caught.value.hint


def test_a_file_has_lists(tmp_path):
    path = tmp_path / "weights.yaml"
    path.write_text("gpus: 3\nbatch_size: 30\nchunks: [4, 13, 13]\n")
    assert split_of(load_config(path), 30, 3).rows() == (4, 13, 13)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gpus": 3, "weights": [1, 2]}, "one of `weights` for each of the 3 GPUs, got 2"),
        ({"gpus": [4, 2], "chunks": [10, 10, 10]}, "one of `chunks` for each of the 2 GPUs, got 3"),
        ({"weights": [1, 2]}, "expected GPUs to share the batch, got none"),
        ({"gpus": 2, "weights": [1, 2], "chunks": [15, 15]}, "expected `weights` or `chunks`, got both"),
        ({"gpus": 2, "chunks": [15, 19]}, "add up to the batch size 30, got 34"),
        ({"gpus": 2, "weights": [0, 0]}, "at least one of `weights` above 0"),
        ({"gpus": 2, "weights": []}, "at least one of `weights` above 0"),
        ({"gpus": 2, "weights": [1, -1]}, "expected a number of 0 or more, got -1 as item 2"),
        ({"gpus": 2, "weights": [1, float("inf")]}, "expected a number of 0 or more, got inf"),
        ({"gpus": 2, "weights": [1, True]}, "expected a number of 0 or more, got true"),
        ({"gpus": 2, "weights": "1,2"}, "a number for each GPU such as"),
        ({"gpus": 2, "chunks": [1.5, 28.5]}, "expected a whole number of 0 or more, got 1.5"),
        (
            {"strategy": "ddp", "gpus": 2, "weights": [1, 0]},
            "a row for each rank .* none for rank 1",
        ),
        (
            {"strategy": "ddp", "gpus": 2, "weights": [1, 2], "batch_size_is": "per-rank"},
            "of all ranks",
        ),
        ({"strategy": "ddp", "gpus": 2, "chunks": [10, 20], "drop_last": True, "data_size": 9}, "one batch"),
    ],
)
def test_impossible_weights_are_an_error(values, message):
    with pytest.raises(UsageError, match=message) as caught:
        make_config(values)
    assert caught.value.hint


def test_the_launcher_decides_the_number_of_ranks():
    config = make_config({"strategy": "ddp", "weights": [1, 2, 2]})
    assert split_of(config, 30, 3).rows() == (6, 12, 12)
    with pytest.raises(UsageError, match="for each of the 2 ranks, got 3") as caught:
        split_of(config, 30, 2)
    assert "processes=3" in caught.value.hint
