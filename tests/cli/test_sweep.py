"""`dpdemo sweep`: the map, its forms, its files."""

import json

import pytest


def test_a_sweep_names_the_even_batch_size_of_each_number_of_gpus(dpdemo):
    done = dpdemo("sweep", "--gpus", "4,7", "--batch-size", "16-40")
    assert done.code == 0
    ends = [line.split()[-1] for line in done.out.splitlines() if line.startswith(("   4 ", "   7 "))]
    assert ends == ["32", "28"]
    found = json.loads(dpdemo("sweep", "--gpus", "4", "--near", "7", "--format", "json").out)
    assert (found["near"], found["lines"][0]["nearest_even"]) == (7, 8)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpus", "all"], "expected numbers such as"),
        (["--gpus", "1-9999999999"], "expected numbers from 1 to 128, got '9999999999'"),
        (["--batch-size", "0"], "expected numbers from 1 to 9223372036854775807, got '0'"),
        (["--near", "x"], "Invalid value for '--near'"),
        (["--of", "beauty"], "'--of'"),
    ],
)
def test_invalid_options_are_reported_with_their_name(dpdemo, args, said):
    done = dpdemo("sweep", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
