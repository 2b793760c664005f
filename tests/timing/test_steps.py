"""A step over several GPUs: its bytes by the rules of PyTorch, its time between two ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.results.speedupdata import Anchor, Launches, Link, Rate
from dpdemo.timing.links import LINKS
from dpdemo.timing.predict import METHOD_ERROR, predict_speedup
from dpdemo.timing.steps import CASES, FAST, MIDDLE, SLOW, DataParallelStep, DdpStep
from dpdemo.timing.workload import given_workload

EXACT = Link(
    name="exact",
    copy_rate=Rate(low=10, high=10),
    ring_rate=Rate(low=10, high=10),
    is_shared=False,
    hides_ring=False,
    source="a test",
)
WORK = given_workload(25_000_000, output_bytes=4_000_000, input_bytes=10_000_000, rows=64)
LAUNCHED = replace(WORK, launches=Launches(forward=1000, backward=2000, modules=300, tensors=500))

links = st.sampled_from([*LINKS.values(), EXACT])
numbers = st.integers(1, 16)
works = st.builds(
    given_workload,
    st.integers(0, 10**10),
    output_bytes=st.integers(0, 10**10),
    input_bytes=st.integers(0, 10**10),
    rows=st.none() | st.integers(1, 1000),
    launches=st.none()
    | st.builds(
        Launches,
        forward=st.integers(0, 10**5),
        backward=st.integers(0, 10**5),
        modules=st.integers(0, 10**4),
        tensors=st.integers(0, 10**4),
    ),
)
steps_ms = st.floats(0.01, 1e5)


def sent(step):
    return {name: num_bytes for name, num_bytes, _ in step.phases(MIDDLE)}


def test_data_parallel_sends_the_model_out_and_its_gradients_back_for_each_further_gpu():
    step = DataParallelStep(WORK, EXACT, (1.0,) * 4)
    assert sent(step) == {
        "load": 30_000_000,
        "scatter": 30_000_000,
        "replicate": 300_000_000,
        "gather": 12_000_000,
        "reduce": 300_000_000,
    }


def test_a_divided_batch_is_scattered_but_for_the_part_of_gpu_0():
    step = DataParallelStep(WORK, EXACT, (0.25,) * 4)
    assert (sent(step)["scatter"], sent(step)["gather"], sent(step)["load"]) == (7_500_000, 3_000_000, 0)


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_a_ring_sends_each_gradient_twice_less_each_rank_s_own_part(gpus):
    step = DdpStep(WORK, EXACT, (1.0,) * gpus)
    assert sent(step) == {"all-reduce": 2 * (gpus - 1) * 100_000_000}


def test_a_copy_takes_as_long_as_the_link_needs_and_a_little_to_begin():
    copies = {name: ms for name, _, ms in DataParallelStep(WORK, EXACT, (1.0, 1.0)).phases(FAST)}
    assert copies["gather"] == pytest.approx(4e6 / 10e9 * 1e3 + 0.012)


def test_where_gpu_0_s_link_is_shared_each_replica_is_sent_its_copy_in_turn():
    shared = replace(EXACT, is_shared=True)
    single, three = (
        {name: ms for name, _, ms in DataParallelStep(WORK, shared, (1.0,) * gpus).phases(MIDDLE)}
        for gpus in (2, 4)
    )
    begun = 10 * 0.045  # ten buckets of 10 MiB
    assert three["replicate"] - begun == pytest.approx(3 * (single["replicate"] - begun))


def test_replicas_are_launched_in_turn_and_hide_behind_a_long_forward_only():
    step = DataParallelStep(LAUNCHED, EXACT, (1.0,) * 4)
    bare = DataParallelStep(WORK, EXACT, (1.0,) * 4)
    assert step.lock_ms(MIDDLE) == pytest.approx(4 * 1000 * 0.012)
    copies = step.replicate_ms(MIDDLE) + sum(ms for name, _, ms in step.phases(MIDDLE) if name != "replicate")
    assert step.extra_ms(10_000, MIDDLE) == pytest.approx(copies)
    assert step.extra_ms(30, MIDDLE) - copies == pytest.approx(48 - 12)
    assert bare.extra_ms(30, MIDDLE) == pytest.approx(sum(ms for _, _, ms in bare.phases(MIDDLE)))


def test_a_backward_hides_the_ring_at_the_fast_end_alone_and_never_through_the_host():
    for name, hides in (("pcie4", True), ("no-p2p", False)):
        step = DdpStep(WORK, LINKS[name], (1.0, 1.0))
        ring = {phase: ms for phase, _, ms in step.phases(FAST)}["all-reduce"]
        added_ms = step.extra_ms(1e4, FAST) - 0.0181 * 1e4
        assert added_ms == pytest.approx(0 if hides else ring)
        assert step.extra_ms(1e4, MIDDLE) > 0.0345 * 1e4


@given(works, links, numbers, steps_ms)
def test_the_ends_lie_in_order(work, link, gpus, alone):
    report = predict_speedup(work, link, [gpus], [Anchor(ms=alone)])
    for way in report.ways:
        for scaling in (way.weak, way.strong):
            found = [phase.ms for phase in scaling.phases]
            found += [scaling.break_even_ms, scaling.step_ms]
            for ends in filter(None, found):
                assert ends.low <= ends.point * (1 + 1e-9) <= ends.high * (1 + 1e-9) ** 2
            assert scaling.speedup.low <= scaling.speedup.point <= scaling.speedup.high


@given(works, links, st.integers(2, 16), steps_ms)
def test_a_step_over_several_gpus_is_never_shorter_than_that_of_one_with_the_same_rows(
    work, link, gpus, alone
):
    for make in (DataParallelStep, DdpStep):
        assert all(make(work, link, (1.0,) * gpus).extra_ms(alone, case) >= 0 for case in CASES)


@pytest.mark.slow
@given(works, links, st.integers(2, 16), st.sampled_from(["weak", "strong"]))
def test_at_the_break_even_several_gpus_take_as_long_as_one(work, link, gpus, name):
    report = predict_speedup(work, link, [gpus])
    for way in report.ways:
        even = getattr(way, name).break_even_ms
        if even is None or even.point < 1e-6:
            continue
        rows = 1e9 if work.rows is None else work.rows
        again = predict_speedup(
            work,
            link,
            [gpus],
            [Anchor(ms=even.point, rows=None if rows == 1e9 else work.rows)],
        )
        scaling = getattr(next(each for each in again.ways if each.strategy == way.strategy), name)
        if name == "weak":
            assert scaling.speedup.point == pytest.approx(1, abs=1e-6)
        else:  # a shorter step is never shorter than its launches
            assert scaling.speedup.point <= 1 + 1e-6


@given(works, links, steps_ms)
def test_one_gpu_has_nothing_to_gain(work, link, alone):
    report = predict_speedup(work, link, [1], [Anchor(ms=alone)])
    for way in report.ways:
        assert (way.weak.speedup.low, way.weak.speedup.high) == (1, 1)
        assert (way.weak.moved_bytes, way.weak.verdict, way.weak.break_even_ms) == (0, "does not pay", None)


def test_the_interval_is_wider_by_the_error_of_the_method():
    ways = predict_speedup(WORK, EXACT, [2], [Anchor(ms=100)]).ways
    gained = next(way for way in ways if way.strategy == "DataParallel").weak.speedup
    step = DataParallelStep(WORK, EXACT, (1.0, 1.0))
    slow = 200 / (100 + step.extra_ms(100, SLOW)) * (1 - METHOD_ERROR)
    assert gained.low == pytest.approx(slow)


@pytest.mark.parametrize(("ms", "verdict"), [(1, "does not pay"), (40, "cannot tell"), (400, "pays")])
def test_the_verdict_follows_the_interval(ms, verdict):
    way = predict_speedup(given_workload(124_000_000), LINKS["pcie4"], [2], [Anchor(ms=ms)]).ways[0]
    assert way.weak.verdict == verdict


def test_a_batch_is_divided_as_each_strategy_does():
    work = replace(WORK, rows=10)
    dp, ddp = predict_speedup(work, EXACT, [8]).ways
    assert (dp.strong.rows, ddp.strong.rows) == ((2, 2, 2, 2, 2), (2,) * 8)


def test_the_summary_says_from_where_on_the_fewest_gpus_pay():
    report = predict_speedup(given_workload(355_000_000), LINKS["nvlink-3090"], [4, 2])
    assert report.summary.startswith("2 GPUs over nvlink-3090 pay if one GPU's step takes longer than ")
    assert report.summary.endswith(" ms (DDP)")


@pytest.mark.parametrize("link", ["pcie4", "nvlink3"])
@pytest.mark.parametrize("ms", [1.0, 100.0])
def test_the_parts_of_a_timeline_add_up_to_the_step(link, ms):
    for way in predict_speedup(LAUNCHED, LINKS[link], (1, 2, 4), [Anchor(ms=ms)]).ways:
        assert sum(part for _, part in way.timeline) == pytest.approx(way.weak.step_ms.point)


def test_a_timeline_without_a_measured_step_has_only_copies():
    for way in predict_speedup(LAUNCHED, LINKS["pcie4"], (4,)).ways:
        assert [name for name, _ in way.timeline] == [phase.name for phase in way.weak.phases]
