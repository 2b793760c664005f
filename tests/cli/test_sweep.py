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


@pytest.mark.parametrize("ending", [".svg", ".html", ".txt", ".json", ".csv", ".md"])
def test_a_sweep_can_be_saved(dpdemo, tmp_path, ending):
    path = tmp_path / f"map{ending}"
    assert dpdemo("sweep", "--gpus", "1-4", "--batch-size", "1-8", "--save", path, "--quiet").err == ""
    assert path.stat().st_size > 100


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpus", "all"], "expected numbers such as"),
        (["--gpus", "1-9999999999"], "expected numbers from 1 to 128, got '9999999999'"),
        (["--batch-size", "0"], "expected numbers from 1 to 9223372036854775807, got '0'"),
        (["--near", "x"], "Invalid value for '--near'"),
        (["--of", "beauty"], "'--of'"),
        (["--save", "map.pdf"], "expected a file ending in"),
    ],
)
def test_invalid_options_are_reported_with_their_name(dpdemo, args, said):
    done = dpdemo("sweep", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
