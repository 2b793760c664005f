"""`dpdemo simulate --lengths`."""

import csv
import io
import json

import pytest

from dpdemo import UsageError, simulate

LENGTHS = [1, 9, 2, 8, 3, 7, 4, 6, 5, 5]


@pytest.fixture
def lengths(users_folder):
    """A file of ten lengths in the current folder."""
    users_folder({"lengths.txt": "\n".join(map(str, LENGTHS))})
    return "lengths.txt"


def test_the_epoch_is_as_long_as_the_lengths(dpdemo, lengths):
    report = json.loads(dpdemo("simulate", 2, "--batch-size", 4, "--lengths", lengths, "-f", "json").out)
    assert report["totals"]["samples"] == report["config"]["data_size"] == 10
    tokens = report["tokens"]
    assert [device["tokens"] for device in tokens["devices"]] == [1 + 9 + 3 + 7 + 5, 2 + 8 + 4 + 6 + 5]
    assert [device["padded_tokens"] for device in tokens["devices"]] == [18 + 14 + 5] * 2
    assert tokens["worst"] == {
        "batch": 1,
        "balance": 1.0,
        "devices": [
            {"device": "cuda:0", "rows": 2, "tokens": 10, "padded_tokens": 18, "share": 1.0},
            {"device": "cuda:1", "rows": 2, "tokens": 10, "padded_tokens": 18, "share": 1.0},
        ],
    }


def test_a_data_size_takes_the_first_lengths(dpdemo, lengths):
    done = dpdemo("simulate", 2, "--lengths", lengths, "--data-size", 4, "-f", "json")
    assert json.loads(done.out)["tokens"]["tokens"] == 20


def test_fewer_lengths_than_samples_are_refused(dpdemo, lengths):
    done = dpdemo("simulate", 2, "--lengths", lengths, "--data-size", 11)
    assert (done.code, done.out) == (2, "")
    assert "expected a length for each of the 11 samples, got 10 - at lengths.txt:10" in done.err


def test_lengths_come_before_checks_of_the_data_size(dpdemo, lengths):
    """A full batch of 10 is possible, though the tutorial's 100 samples would have told nothing."""
    assert dpdemo("simulate", 2, "--lengths", lengths, "--batch-size", 10, "--drop-last").code == 0
    done = dpdemo("simulate", 2, "--lengths", lengths, "--batch-size", 11, "--drop-last")
    assert "expected at least one full batch, got data_size 10 < batch_size 11" in done.err


def test_csv_and_verbose_json_list_every_batch(dpdemo, lengths):
    common = ("simulate", "--gpus", 3, "--batch-size", 4, "--lengths", lengths)
    rows = list(csv.DictReader(io.StringIO(dpdemo(*common, "-f", "csv").out)))
    batches = json.loads(dpdemo(*common, "-f", "json", "--verbose").out)["tokens"]["batches"]
    assert [batch["batch"] for batch in batches] == [1, 2, 3]
    for batch in batches:
        matching = [row for row in rows if int(row["first"]) == batch["batch"]]
        inside = [row for row in matching if row["view"] != "outside"]
        assert [int(row["tokens"]) for row in inside] == [device["tokens"] for device in batch["devices"]]
        assert int(matching[-1]["tokens"]) == sum(int(row["tokens"]) for row in inside)
    idle = [row for row in rows if row["view"] == "idle"]
    assert [(row["device"], row["tokens"]) for row in idle] == [("cuda:2", "0")] * 3


@pytest.mark.parametrize(
    ("limit", "code"), [("token-balance<0.5", 0), ("token-balance<1", 1), ("idle,token-balance<1", 1)]
)
def test_a_gate_on_the_balance(dpdemo, lengths, limit, code):
    done = dpdemo("simulate", 2, "--batch-size", 3, "--lengths", lengths, "--fail-on", limit)
    assert done.code == code
    assert ("--fail-on token-balance<1: the balance by tokens is" in done.err) == bool(code)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pack", 8], "expected at most 8 tokens, got 9 in lengths.txt:2 - at option `--pack`"),
        (["--pad-to", 8], "got 9 in lengths.txt:2 - at option `--pad-to`"),
        (
            ["--pad-to", 9, "--pack", 10],
            "expected at least the 10 tokens of `pack`, got 9 - at option `--pad-to`",
        ),
        (["--pad-to", "most"], "expected `chunk`, `batch` or a whole number of 1 or more, got 'most'"),
        (["--pack", 0], "expected a whole number from 1 to 9223372036854775807, got 0 - at option `--pack`"),
        (["--accumulate", -1], "got -1 - at option `--accumulate`"),
        (["--sort", "--group-by-length"], "expected one order, got `sort` and `group_by_length`"),
        (["--sort", "--seed", 1], "expected one order, got `sort` and `shuffle`"),
        *(
            (["--fail-on", bad], "expected token-balance< and a number from 0 to 1")
            for bad in ("token-balance", "token-balance<", "token-balance<2", "token-balance>0.5")
        ),
    ],
)
def test_impossible_options_are_refused(dpdemo, lengths, options, said):
    done = dpdemo("simulate", 2, "--lengths", lengths, *options)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_grouping_is_advised_where_it_helps(dpdemo, tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("\n".join(str(10 + 977 * number % 1009) for number in range(2000)))
    plain = dpdemo("simulate", 4, "--batch-size", 8, "--lengths", path, "-f", "json").out
    grouped = dpdemo(
        "simulate", 4, "--batch-size", 8, "--lengths", path, "--group-by-length", "-f", "json"
    ).out
    before, after = json.loads(plain)["tokens"], json.loads(grouped)["tokens"]
    assert before["balance_grouped"] == after["balance"] > before["balance"] == after["balance_before"]
    shown = dpdemo("simulate", 4, "--batch-size", 8, "--lengths", path).out
    assert f"--group-by-length takes the balance from {100 * before['balance']:.3g} %" in shown


def test_python_gives_the_same_report(dpdemo, lengths):
    done = dpdemo(
        "simulate", 2, "--batch-size", 4, "--lengths", lengths, "--pack", 12, "--seed", 7, "-f", "json"
    )
    plain = json.loads(done.out)
    report = simulate(gpus=2, batch_size=4, lengths=LENGTHS, pack=12, seed=7, shuffle=True)
    assert report.to_dict() == {**plain, "tokens": {**plain["tokens"], "source": ""}}


@pytest.mark.parametrize("given", [{"pack": 5}, {"accumulate": 2}, {"sort": True}, {"cost": "quadratic"}])
def test_python_refuses_options_without_lengths(given):
    with pytest.raises(UsageError, match="expected `lengths` beside it, got none - at argument"):
        simulate(gpus=2, **given)


def test_python_refuses_an_unknown_cost():
    with pytest.raises(UsageError, match="expected linear or quadratic, got 'cubic'"):
        simulate(gpus=2, lengths=[1], cost="cubic")
