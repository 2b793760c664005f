"""`dpdemo explain` as its user calls it."""

import pytest
from processes import needs_no_gpu


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
