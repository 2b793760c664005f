"""`dpdemo explain` as its user calls it."""

import dataclasses
import json

import pytest
from processes import needs_no_gpu

from dpdemo.results.explanation import Explanation


@needs_no_gpu
@pytest.mark.parametrize("gpus", ["0,1,2", "2,0,1"])
def test_four_steps_are_shown_in_their_order(dpdemo, gpus):
    done = dpdemo("explain", "--virtual", "--gpus", gpus)
    assert (done.code, done.err) == (0, "")
    places = [done.out.index(f"\n{text}") for text in ("1 scatter", "2 replicate", "3 parallel", "4 gather")]
    assert places == sorted(places)
    assert "equal to module(input) on cuda:" in done.out


@needs_no_gpu
def test_without_a_gpu_a_hint_names_virtual_ones(dpdemo):
    done = dpdemo("explain")
    assert "1 module(input)" in done.out
    assert "dpdemo explain --virtual --gpus 0,1,2" in done.err
    assert dpdemo("explain", "-q").err == ""


@needs_no_gpu
def test_the_checked_in_config_has_an_uneven_split(dpdemo):
    done = dpdemo("explain", "--virtual", "--config", "configs/primitives.yaml", "-f", "json")
    found = json.loads(done.out)
    assert [part["shapes"] for part in found["steps"][0]["made"]] == [[3, 5], [3, 5], [3, 5], [1, 5]]
    assert set(found) == {"schema", "model", *(field.name for field in dataclasses.fields(Explanation))}


def test_missing_format_is_refused(dpdemo):
    assert dpdemo("explain", "-f", "transcript").code == 2
    assert "--verbose" not in dpdemo("explain", "--help").out
