"""One step as lanes, blocks and arrows: who works, what is copied, and who waits for whom.

With a measured step the axis is time, all ranges in their middles. Without one it is not time: copies get one
half of it, each as long as its bytes, and work the other half, as long as its operators.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from dpdemo.reports.speedup import PhaseCost, SpeedupReport, Strategy, Way
from dpdemo.reports.timeline import Arrow, Block, Timeline
from dpdemo.timing.costs import DDP_SHARE, FORWARD_SHARE
from dpdemo.timing.steps import MIDDLE

HOST = "host"
TIME_AXIS = "milliseconds; every range in its middle"
ORDER_AXIS = "not time: copies are as long as their bytes, work as long as its operators"
_HALF = 50.0
_OUTWARD = {"scatter", "replicate", "output gradients"}


@dataclass
class _Drawn:
    """A timeline under way: `now` is where the next phase begins."""

    lanes: tuple[str, ...]
    now: float = 0.0
    blocks: list[Block] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)

    def work(self, lanes: Iterable[str], name: str, length: float) -> None:
        for lane in lanes:
            self.blocks.append(Block(lane=lane, name=name, start=self.now, length=length, work="compute"))
        self.now += length

    def copy(
        self,
        pairs: list[tuple[str, str]],
        name: str,
        length: float,
        num_bytes: int,
        *,
        in_turn: bool = False,
    ) -> None:
        """Draw the copies of one phase: all at once, or in turn where they go through one link."""
        if not pairs or not num_bytes:
            return
        each, own = num_bytes // len(pairs), length / len(pairs) if in_turn else length
        start = self.now
        for source, target in pairs:
            arrow = Arrow(source=source, target=target, name=name, start=start, length=own, num_bytes=each)
            self.arrows.append(arrow)
            for lane in (source, target):
                if in_turn or (lane, name) not in {(block.lane, block.name) for block in self.blocks}:
                    self.blocks.append(Block(lane=lane, name=name, start=start, length=own, work="copy"))
            start += own if in_turn else 0.0
        self.now += length

    def finished(self, title: str, *, is_time: bool) -> Timeline:
        blocks = [*self.blocks, *self._waits()]
        blocks.sort(key=lambda block: (self.lanes.index(block.lane), block.start))
        return Timeline(
            title=title,
            axis=TIME_AXIS if is_time else ORDER_AXIS,
            is_time=is_time,
            lanes=self.lanes,
            blocks=tuple(blocks),
            arrows=tuple(self.arrows),
        )

    def _waits(self) -> Iterator[Block]:
        """Fill the gaps of each GPU's lane."""
        for lane in self.lanes:
            if lane == HOST:
                continue
            mine = [block for block in self.blocks if block.lane == lane]
            busy = sorted((block.start, block.start + block.length) for block in mine)
            reached = 0.0
            for start, end in [*busy, (self.now, self.now)]:
                if start - reached > self.now * 1e-9:
                    waited = start - reached
                    yield Block(lane=lane, name="waits for GPU 0", start=reached, length=waited, work="wait")
                reached = max(reached, end)


def timelines(report: SpeedupReport) -> tuple[Timeline, ...]:
    """Draw a step of every way, each GPU with the rows of one GPU's batch."""
    return tuple(timeline(report, way.num_gpus, way.strategy) for way in report.ways)


def timeline(report: SpeedupReport, num_gpus: int, strategy: Strategy) -> Timeline:
    """Draw a step of one way."""
    way = report.way(num_gpus, strategy)
    lengths = _Lengths(report, way)
    lanes = tuple(f"GPU {index}" for index in range(num_gpus))
    gpus = f"{num_gpus} GPU{'' if num_gpus == 1 else 's'}"
    title = f"{strategy} over {gpus}: one step of {report.workload.name}"
    draw = _data_parallel if strategy == "DataParallel" else _ddp
    drawn = draw(way, lengths, lanes)
    return drawn.finished(title, is_time=lengths.is_time)


class _Lengths:
    """How long each part is on the axis."""

    def __init__(self, report: SpeedupReport, way: Way) -> None:
        self._way = way
        self.is_time = way.weak.step_ms is not None
        self.is_shared = report.link.is_shared
        alone = way.weak.one_gpu_ms
        self._step = 0.0 if alone is None else alone.point / (way.num_gpus or 1)
        launches = report.workload.launches
        forward = 1 if launches is None else launches.forward
        backward = 2 if launches is None else launches.backward
        self._forward_part = forward / max(1, forward + backward)
        self._bytes = sum(phase.num_bytes for phase in way.weak.phases)

    def copy(self, phase: PhaseCost) -> float:
        if self.is_time:
            return phase.ms.point
        return _HALF * phase.num_bytes / self._bytes if self._bytes else 0.0

    def replicate(self, phase: PhaseCost) -> float:
        """Python copies modules while the broadcast runs: the longer of the two counts."""
        own = self._way.replicate_ms
        return max(self.copy(phase), own.point if self.is_time and own is not None else 0.0)

    @property
    def forward(self) -> float:
        return self._step * FORWARD_SHARE + self._lock() if self.is_time else _HALF * self._forward_part

    @property
    def backward(self) -> float:
        if not self.is_time:
            return _HALF * (1 - self._forward_part)
        own = MIDDLE.cost(DDP_SHARE) if self._way.strategy == "DDP" and self._way.num_gpus > 1 else 0.0
        return self._step * (1 - FORWARD_SHARE + own)

    def _lock(self) -> float:
        """Return what launching all forwards takes longer than one runs: what copies do not explain."""
        if self._way.strategy == "DDP" or self._way.weak.step_ms is None:
            return 0.0
        copies = sum(
            self.replicate(phase) if phase.name == "replicate" else self.copy(phase)
            for phase in self._way.weak.phases
        )
        return max(0.0, self._way.weak.step_ms.point - self._step - copies)


def _data_parallel(way: Way, lengths: _Lengths, lanes: tuple[str, ...]) -> _Drawn:
    phases: dict[str, PhaseCost] = {phase.name: phase for phase in way.weak.phases}
    is_loaded = "load" in phases and phases["load"].num_bytes > 0
    drawn = _Drawn((HOST, *lanes) if is_loaded else lanes)
    first, others = lanes[0], lanes[1:]

    def copy(name: str, length: Callable[[PhaseCost], float] = lengths.copy) -> None:
        if name not in phases:
            return
        phase = phases[name]
        pairs = [(first, lane) if name in _OUTWARD else (lane, first) for lane in others]
        pairs = [(HOST, first)] if name == "load" else pairs
        in_turn = lengths.is_shared or name not in {"replicate", "reduce"}
        drawn.copy(pairs, name, length(phase), phase.num_bytes, in_turn=in_turn)

    copy("load")
    copy("scatter")
    copy("replicate", lengths.replicate)
    drawn.work(lanes, "forward", lengths.forward)
    copy("gather")
    copy("output gradients")
    drawn.work(lanes, "backward", lengths.backward)
    copy("reduce")
    copy("input gradients")
    return drawn


def _ddp(way: Way, lengths: _Lengths, lanes: tuple[str, ...]) -> _Drawn:
    phases: dict[str, PhaseCost] = {phase.name: phase for phase in way.weak.phases}
    drawn = _Drawn(lanes)
    if buffers := phases.get("buffers"):
        drawn.copy(
            [(lanes[0], lane) for lane in lanes[1:]], "buffers", lengths.copy(buffers), buffers.num_bytes
        )
    drawn.work(lanes, "forward", lengths.forward)
    drawn.work(lanes, "backward", lengths.backward)
    ring = list(zip(lanes, (*lanes[1:], lanes[0]), strict=True)) if len(lanes) > 1 else []
    if reduced := phases.get("all-reduce"):
        drawn.copy(ring, "all-reduce", lengths.copy(reduced), reduced.num_bytes)
    return drawn
