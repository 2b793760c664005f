"""`dpdemo simulate`."""

import pytest


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
