"""`dpdemo simulate`."""

import json

import pytest
from processes import run

SEED_CASES = [
    ([], [[30], [10]]),
    (["--gpus", "1"], [[30], [10]]),
    (["--gpus", "2"], [[15, 15], [5, 5]]),
    (["--gpus", "3"], [[10, 10, 10], [4, 4, 2]]),
    (["--gpus", "8"], [[4, 4, 4, 4, 4, 4, 4, 2], [2, 2, 2, 2, 2]]),
]


@pytest.mark.parametrize(("options", "rows"), SEED_CASES)
def test_the_tutorials_cases_come_out_right(dpdemo, options, rows):
    done = dpdemo("simulate", *options, "--format", "json")
    report = json.loads(done.out)
    assert done.code == 0
    assert [batch["count"] for batch in report["batches"]] == [3, 1]
    assert [[entry["input"][0] for entry in batch["in_model"]] for batch in report["batches"]] == rows
    assert [batch["outside"]["input"] for batch in report["batches"]] == [[30, 5], [10, 5]]


def test_without_gpus_a_hint_shows_the_way(dpdemo):
    done = dpdemo("simulate")
    assert "try --gpus 8" in done.err
    assert dpdemo("simulate", "--quiet").err == ""


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ("idle", ["--fail-on idle: batch 4: 3 of 8 devices idle (cuda:5–7)"]),
        ("uneven", ["--fail-on uneven: batches 1–3: chunks of 4 and 2 rows"]),
        ("uneven,idle", ["--fail-on uneven: batches 1–3", "--fail-on idle: batch 4"]),
    ],
)
def test_fail_on_is_a_gate_with_its_reason_on_stderr(dpdemo, kinds, said):
    done = dpdemo("simulate", "--gpus", "8", "--fail-on", kinds)
    assert done.code == 1
    for reason in said:
        assert reason in done.err
    assert "Balance" in done.out


def test_passed_gate_exits_with_0(dpdemo):
    done = dpdemo("simulate", "--gpus", "2", "--fail-on", "idle,uneven,lone-sample")
    assert (done.code, done.err) == (0, "")


def test_simulate_never_imports_torch():
    import sys

    code = """
import sys
sys.argv = ["dpdemo", "simulate", "--gpus", "8"]
from dpdemo.cli import main
try:
    main()
except SystemExit:
    pass
print("torch" in sys.modules)
"""
    done = run([sys.executable, "-c", code], check=True)
    assert done.stdout.splitlines()[-1] == "False"
    seen = run([sys.executable, "-c", "import torch\n" + code], check=True)
    assert seen.stdout.splitlines()[-1] == "True"  # the test can fail
