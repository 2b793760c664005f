"""The timeline of a step, and those of what explain and exec saw."""

import pytest

from dpdemo.config.fields import Config
from dpdemo.reports.devices import Devices
from dpdemo.reports.execution import ExecReport, Traffic, Use
from dpdemo.reports.explanation import Explanation, ModuleSize, Move, Part, PlainCall, Step
from dpdemo.reports.speedup import Anchor, Launches
from dpdemo.reports.split import BatchGroup, Outside, ReplicaRun, one
from dpdemo.timing.links import LINKS
from dpdemo.timing.predict import predict_speedup
from dpdemo.timing.seen import execution_timeline, explanation_timeline
from dpdemo.timing.timeline import ORDER_AXIS, TIME_AXIS, timeline, timelines
from dpdemo.timing.workload import given_workload

WORK = given_workload(
    25_000_000,
    output_bytes=4_000_000,
    input_bytes=10_000_000,
    launches=Launches(forward=1000, backward=2000, modules=300, tensors=500),
)


def report_of(link="pcie4", ms=100.0, gpus=(2, 4)):
    return predict_speedup(WORK, LINKS[link], gpus, [Anchor(ms=ms)] if ms else [])


@pytest.mark.parametrize("strategy", ["DataParallel", "DDP"])
@pytest.mark.parametrize("gpus", [1, 2, 4])
@pytest.mark.parametrize("link", ["pcie4", "nvlink3"])
@pytest.mark.parametrize("ms", [1.0, 100.0])
def test_with_a_measured_step_it_is_as_long_as_the_step(strategy, gpus, link, ms):
    report = report_of(link, ms, (gpus,))
    drawn = timeline(report, gpus, strategy)
    assert drawn.axis == TIME_AXIS
    assert drawn.length == pytest.approx(report.way(gpus, strategy).weak.step_ms.point)


def test_without_one_the_axis_says_that_it_is_no_time():
    drawn = timeline(report_of(ms=None), 4, "DataParallel")
    assert (drawn.axis, drawn.is_time, drawn.length) == (ORDER_AXIS, False, pytest.approx(100))
    work = {block.name: block.length for block in drawn.blocks if block.lane == "GPU 0"}
    assert work["backward"] == pytest.approx(2 * work["forward"])  # as many operators


@pytest.mark.parametrize("strategy", ["DataParallel", "DDP"])
def test_the_arrows_carry_the_bytes_of_the_phases(strategy):
    report = report_of()
    drawn = timeline(report, 4, strategy)
    sent = {}
    for arrow in drawn.arrows:
        sent[arrow.name] = sent.get(arrow.name, 0) + arrow.num_bytes
    assert sent == {phase.name: phase.num_bytes for phase in report.way(4, strategy).weak.phases}


@pytest.mark.parametrize("drawn", timelines(report_of()), ids=lambda drawn: drawn.title[:20])
def test_every_gpu_works_copies_or_waits_at_every_moment(drawn):
    for lane in drawn.lanes:
        own = [block for block in drawn.blocks if block.lane == lane]
        if lane == "host":
            continue
        reached = 0.0
        for block in own:
            assert block.start == pytest.approx(reached, abs=1e-6)
            reached = block.start + block.length
        assert reached == pytest.approx(drawn.length)


def test_on_a_shared_link_the_replicas_get_their_parameters_in_turn_and_wait():
    shared, own = (timeline(report_of(link), 4, "DataParallel") for link in ("pcie4", "nvlink3"))
    starts = [len({a.start for a in drawn.arrows if a.name == "replicate"}) for drawn in (shared, own)]
    assert starts == [3, 1]
    assert any(block.name == "waits for GPU 0" and block.lane == "GPU 3" for block in shared.blocks)


def test_an_explanation_is_drawn_a_step_a_unit():
    batch = Part("input", "cuda:0", one((4, 5)), 1, 80)
    chunks = tuple(Part(f"chunk {i}", f"cuda:{i}", one((2, 5)), 1, 40) for i in range(2))
    steps = (
        Step("scatter", "scatter(...)", (batch,), chunks, (Move("cuda:0", "cuda:1", 40),)),
        Step("parallel_apply", "parallel_apply(...)", chunks, chunks, ()),
    )
    explanation = Explanation(
        config=Config(),
        devices=Devices.of("cuda", range(2)),
        wrapped="",
        virtual=True,
        batch_size=4,
        module=ModuleSize(2, 48, 0, 0),
        steps=steps,
        idle=Devices.of("cuda", range(0)),
        bytes_from="ledger",
        plain=PlainCall(0.0, 1.0, "float32", "cuda:0"),
    )
    drawn = explanation_timeline(explanation)
    assert (drawn.lanes, drawn.length, drawn.is_time) == (("cuda:0", "cuda:1"), 2, False)
    assert [(a.source, a.target, a.num_bytes) for a in drawn.arrows] == [("cuda:0", "cuda:1", 40)]
    assert [(b.lane, b.name, b.start) for b in drawn.blocks] == [
        *(("cuda:0", "scatter", 0), ("cuda:1", "scatter", 0)),
        *(("cuda:0", "parallel_apply", 1), ("cuda:1", "parallel_apply", 1)),
    ]


def test_every_data_parallel_call_of_a_program_is_drawn():
    devices = Devices.of("cuda", range(2))
    outside = Outside("cuda:0", "cuda:0", one((4, 5)), one((4, 2)))
    runs = (ReplicaRun(0, devices, 2, one((2, 5)), one((2, 2))),)
    none = Devices.of("cuda", range(0))
    splits = (BatchGroup(1, 3, 4, runs, none, outside), BatchGroup(4, 1, 4, runs, none, outside))
    use = Use(1, "DataParallel", "Net", devices, splits, 4)
    report = ExecReport("train.py", (), devices, (use,), Traffic(0, 0, 0, 0, 0, 0), (0, 0))
    drawn = execution_timeline(report)
    assert drawn.length == 4
    assert [(b.lane, b.start, b.length) for b in drawn.blocks] == [
        *(("cuda:0", 0, 3), ("cuda:1", 0, 3), ("cuda:0", 3, 1), ("cuda:1", 3, 1)),
    ]
    assert drawn.blocks[0].detail == "3 calls split the same way, the first is call 1: 2 of 4 rows"
