"""The timeline of one step: its parts add up to the step, and carry what the phases cost."""

import pytest

from dpdemo.results.speedupdata import Anchor, Launches
from dpdemo.timing.links import LINKS
from dpdemo.timing.predict import predict_speedup
from dpdemo.timing.workload import given_workload

WORK = given_workload(
    25_000_000,
    output_bytes=4_000_000,
    input_bytes=10_000_000,
    launches=Launches(forward=1000, backward=2000, modules=300, tensors=500),
)


@pytest.mark.parametrize("link", ["pcie4", "nvlink3"])
@pytest.mark.parametrize("ms", [1.0, 100.0])
def test_the_parts_of_a_timeline_add_up_to_the_step(link, ms):
    for way in predict_speedup(WORK, LINKS[link], (1, 2, 4), [Anchor(ms=ms)]).ways:
        assert sum(part for _, part in way.timeline) == pytest.approx(way.weak.step_ms.point)


def test_a_timeline_without_a_measured_step_has_only_copies():
    for way in predict_speedup(WORK, LINKS["pcie4"], (4,)).ways:
        assert [name for name, _ in way.timeline] == [phase.name for phase in way.weak.phases]
