"""`dpdemo sweep`: the map, its forms, its files."""

import json

import pytest


def test_a_sweep_names_the_best_cell_near_the_tutorials_batch(dpdemo):
    done = dpdemo("sweep")
    assert done.code == 0
    assert "Best near a batch of 30: 30 on 15 GPUs, 2 each" in done.out


def test_the_batch_of_a_config_says_near_what_to_look(dpdemo, tmp_path):
    config = tmp_path / "own.yaml"
    config.write_text("batch_size: 45\n")
    found = json.loads(dpdemo("sweep", "--config", config, "--gpus", "2-8:x2", "--format", "json").out)
    assert (found["near"], found["best"]["batch_size"], found["best"]["gpus"]) == (45, 46, 2)
    assert json.loads(dpdemo("sweep", "--near", "7", "--format", "json").out)["near"] == 7


@pytest.mark.parametrize("ending", [".svg", ".html", ".txt", ".json", ".csv", ".md"])
def test_a_sweep_can_be_saved(dpdemo, tmp_path, ending):
    path = tmp_path / f"map{ending}"
    assert dpdemo("sweep", "--gpus", "1-4", "--batch-size", "1-8", "--save", path, "--quiet").err == ""
    assert path.stat().st_size > 100


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpus", "all"], "expected numbers such as"),
        (["--gpus", "1-9999999999"], "expected numbers from 1 to 2147483647, got '9999999999'"),
        (["--batch-size", "0"], "expected numbers from 1 to 9223372036854775807, got '0'"),
        (["--near", "x"], "expected a whole number from 1 to"),
        (["--of", "beauty"], "`--of`"),
        (["--save", "map.pdf"], "expected a file ending in"),
    ],
)
def test_what_cannot_be_swept_is_said_with_its_place(dpdemo, args, said):
    done = dpdemo("sweep", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


FITS = ["sweep", "linear", "--of", "fits", "--gpu-memory", "700MiB", "--gpus", "1,2", "--batch-size", "8,16"]


def test_a_second_sweep_of_the_same_model_takes_its_predictions_from_the_first(program, tmp_path):
    given = {"XDG_CACHE_HOME": str(tmp_path)}
    first = program(*FITS, **given)
    assert (first.code, first.err) == (0, "")
    assert "4 predictions." in first.out
    second = program(*FITS, "--gpu-memory", "2GiB", **given)
    assert "4 predictions, 4 of them in an earlier sweep." in second.out
    anew = program(*FITS, "--no-cache", **given)
    assert anew.out == first.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["linear"],
            "expected nothing that `--of balance` does not ask for, got a value - at argument TARGET",
        ),
        (["--of", "idle", "--link", "pcie3"], "at option `--link`"),
        (["--of", "memory", "--gpu-memory", "1GiB"], "at option `--gpu-memory`"),
        (["--of", "fits", "--one-gpu-step", "1ms@2"], "at option `--one-gpu-step`"),
        (["--of", "speedup", "--link", "pcie3", "--gpu", "T4"], "at option `--gpu`"),
        (["--of", "fits"], "expected what each GPU can hold, got nothing - at option `--gpu-memory`"),
        (["--of", "speedup"], "expected how the GPUs are joined"),
        (
            ["--of", "speedup", "--link", "pcie3", "--bandwidth", "1GB/s"],
            "at options `--link` and `--bandwidth`",
        ),
        (["--of", "memory", "--input", "1x2", "--inputs", "a:b"], "at options `--input` and `--inputs`"),
        (["--of", "memory", "--input", "wide"], "--input"),
        (["nowhere.py:Net", "--of", "memory"], "nowhere.py"),
    ],
)
def test_what_a_prediction_lacks_or_does_not_need_is_said_with_its_place(dpdemo, args, said):
    done = dpdemo("sweep", "--gpus", "2", "--batch-size", "8", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
