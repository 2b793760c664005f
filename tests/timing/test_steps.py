"""A step over several GPUs: its bytes by the rules of PyTorch, its time between two ends, the break-even."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.results.speedup import Ends, Launches, Link, Workload
from dpdemo.timing.links import LINKS, link_of_bandwidth
from dpdemo.timing.predict import METHOD_ERROR, predict_speedup
from dpdemo.timing.steps import FAST, SLOW, DataParallelStep, DdpStep

EXACT = Link("exact", Ends(10, 10), Ends(10, 10), hides_ring=False)
LAUNCHES = Launches(forward=1000, backward=2000, modules=300, tensors=500)


def work(parameters, rows=64, launches=None, **num_bytes):
    """A float32 model of so many parameters, all trained."""
    weight = 4 * parameters
    return Workload(
        name="Net", rows=rows, num_parameters=parameters, parameter_bytes=weight, gradient_bytes=weight,
        launches=launches, **num_bytes,
    )  # fmt: skip


WORK = work(25_000_000, input_bytes=40_000_000, output_bytes=16_000_000)
LAUNCHED = replace(WORK, launches=LAUNCHES)
QUARTERS = (0.25,) * 4

links = st.sampled_from([*LINKS.values(), EXACT])
counts = st.integers(0, 10**5)
works = st.builds(
    work,
    st.integers(0, 10**10),
    rows=st.integers(1, 1000),
    launches=st.none() | st.builds(Launches, counts, counts, counts, counts),
    input_bytes=st.integers(0, 10**10),
    output_bytes=st.integers(0, 10**10),
    buffer_bytes=st.integers(0, 10**8),
)


def sent(step):
    return {name: num_bytes for name, (num_bytes, _) in step.copies(FAST).items() if num_bytes}


def test_data_parallel_sends_the_model_to_each_further_gpu_and_rows_but_for_those_of_gpu_0():
    assert sent(DataParallelStep(WORK, EXACT, QUARTERS)) == {
        "scatter": 30_000_000,
        "replicate": 300_000_000,
        "gather": 12_000_000,
        "reduce": 300_000_000,
    }


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_a_ring_sends_each_gradient_twice_less_each_rank_s_own_part(gpus):
    step = DdpStep(WORK, EXACT, (1 / gpus,) * gpus)
    assert sent(step) == {"all-reduce": 2 * (gpus - 1) * 100_000_000}


def test_a_copy_takes_as_long_as_the_link_needs_and_a_little_to_begin():
    _, ms = DataParallelStep(WORK, EXACT, (0.75, 0.25)).copies(FAST)["gather"]
    assert ms == pytest.approx(4e6 / 10e9 * 1e3 + 0.012)


def test_only_at_the_slow_end_each_replica_is_sent_its_copy_in_turn():
    one, three = (DataParallelStep(WORK, EXACT, (1 / gpus,) * gpus) for gpus in (2, 4))
    assert three.copies(FAST)["replicate"][1] == one.copies(FAST)["replicate"][1]
    begun = 10 * 0.065  # ten buckets of 10 MiB
    slow = [step.copies(SLOW)["replicate"][1] - begun for step in (one, three)]
    assert slow[1] == pytest.approx(3 * slow[0])


def test_replicas_are_launched_in_turn_and_hide_behind_a_long_forward_only():
    step = DataParallelStep(LAUNCHED, EXACT, QUARTERS)
    assert step.launch_ms(FAST) == pytest.approx(4 * 1000 * 0.0056)
    copies = step.copies_ms(FAST)
    assert copies["replicate"] < step.replicate_ms(FAST)  # Python is slower than the broadcast here
    counted = sum({**copies, "replicate": step.replicate_ms(FAST)}.values())
    assert step.extra_ms(10_000, FAST) == pytest.approx(counted)
    assert step.extra_ms(30, FAST) - counted == pytest.approx(22.4 - 10)
    large = DataParallelStep(replace(LAUNCHED, parameter_bytes=10**9), EXACT, QUARTERS)
    assert large.extra_ms(10_000, FAST) == pytest.approx(sum(large.copies_ms(FAST).values()))


def test_a_backward_hides_the_ring_at_the_fast_end_alone_and_never_through_the_host():
    for name, hides in (("pcie4", True), ("no-p2p", False)):
        step = DdpStep(WORK, LINKS[name], (0.5, 0.5))
        added_ms = step.extra_ms(1e4, FAST) - 0.0181 * 1e4
        assert added_ms == pytest.approx(0 if hides else step.copies_ms(FAST)["all-reduce"])
        assert step.extra_ms(1e4, SLOW) == pytest.approx(0.0509 * 1e4 + step.copies_ms(SLOW)["all-reduce"])


@given(works, links, st.integers(1, 16))
def test_the_ends_are_in_order_and_a_break_even_exists_where_a_batch_is_divided(work, link, gpus):
    for way in predict_speedup(work, link, gpus).ways:
        for ends in filter(None, (way.copies_ms, way.replicate_ms, way.launch_ms, way.break_even_ms)):
            assert 0 <= ends.low <= ends.high * (1 + 1e-9)
        assert (way.break_even_ms is None) == (gpus == 1 or work.rows == 1)


@given(works, links, st.integers(2, 16))
def test_at_the_break_even_several_gpus_take_as_long_as_one(work, link, gpus):
    for way in predict_speedup(work, link, gpus).ways:
        if way.break_even_ms is None:
            continue
        shares = [rows / work.rows for rows in way.rows]
        step = (DataParallelStep if way.strategy == "DataParallel" else DdpStep)(work, link, shares)
        for one, place, error in (
            (way.break_even_ms.low, FAST, METHOD_ERROR),
            (way.break_even_ms.high, SLOW, -METHOD_ERROR),
        ):
            several = one * max(shares) + step.extra_ms(one * max(shares), place)
            assert several == pytest.approx(one * (1 + error), rel=1e-6, abs=1e-6)


def test_a_batch_is_divided_as_each_strategy_does():
    dp, ddp = predict_speedup(replace(WORK, rows=10), EXACT, 8).ways
    assert (dp.rows, ddp.rows) == ((2, 2, 2, 2, 2), (2,) * 8)


def test_the_summary_has_the_break_even_of_both_strategies_and_the_rows_that_it_is_of():
    report = predict_speedup(work(355_000_000, rows=32), LINKS["nvlink-3090"], 4)
    assert report.summary.startswith("4 GPUs over nvlink-3090 pay if one GPU needs longer than ")
    assert report.summary.endswith(" ms (DDP) for a step of 32 rows")
    assert predict_speedup(WORK, EXACT, 1).summary == "Nothing to gain: the batch is not divided"


FROZEN = Path(__file__).parent / "frozen.csv"
FROZEN_WORKS = {
    "images": work(
        25_557_032, 64, Launches(228, 400, 151, 320), output_bytes=256_000, input_bytes=38_535_168
    ),
    "ten rows": work(
        12_500_000, 10, Launches(228, 400, 151, 320), output_bytes=4_000_000, input_bytes=10_000_000,
        buffer_bytes=212_992, output_gradient_bytes=4_000_000, input_gradient_bytes=1_000_000,
    ),
}  # fmt: skip


def frozen_row(work, link, gpus, way):
    numbers = [sum(way.num_bytes.values())]
    for ends in (way.copies_ms, way.break_even_ms):
        numbers += [] if ends is None else [ends.low, ends.high]
    return [work, link, gpus, way.strategy, *(f"{number:.9g}" for number in numbers)]


@pytest.mark.parametrize("name", FROZEN_WORKS)
def test_figures_are_those_of_the_longer_model_that_this_one_was_made_from(name):
    with FROZEN.open() as file:
        frozen = [row for row in csv.reader(file) if row[0] == name]
    found = [
        frozen_row(name, link, gpus, way)
        for link in ("pcie4", "nvlink3", "no-p2p", "20GB/s")
        for gpus in (1, 3, 8)
        for way in predict_speedup(FROZEN_WORKS[name], LINKS.get(link) or link_of_bandwidth(link), gpus).ways
    ]
    assert [[str(cell) for cell in row] for row in found] == frozen
