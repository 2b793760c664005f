"""What `explain` and `exec` saw, as lanes, blocks and arrows: an order of things, not their time."""

from dpdemo.reports.execution import ExecReport, Use
from dpdemo.reports.explanation import Explanation, Step
from dpdemo.reports.split import BatchGroup
from dpdemo.reports.timeline import Arrow, Block, Timeline, Work

STEP_AXIS = "not time: a step of DataParallel is a unit long"
CALL_AXIS = "not time: a call of DataParallel is a unit long"


def explanation_timeline(explanation: Explanation) -> Timeline:
    """Draw the steps that one batch was taken through: each a unit long, its copies inside it."""
    lanes = _lanes(explanation)
    blocks: list[Block] = []
    arrows: list[Arrow] = []
    for place, step in enumerate(explanation.steps):
        arrows += [
            Arrow(
                source=move.source,
                target=move.target,
                name=step.name,
                start=place,
                length=1,
                num_bytes=move.num_bytes,
            )
            for move in step.moved
        ]
        blocks += [
            Block(lane=lane, name=step.name, start=place, length=1, work=_kind(step), detail=detail)
            for lane, detail in _busy(step).items()
        ]
    title = f"DataParallel over {len(explanation.devices)} devices: a batch of {explanation.batch_size}"
    return Timeline(
        title=title, axis=STEP_AXIS, is_time=False, lanes=lanes, blocks=tuple(blocks), arrows=tuple(arrows)
    )


def _lanes(explanation: Explanation) -> tuple[str, ...]:
    found = [part.device for step in explanation.steps for part in (*step.given, *step.made)]
    moved = [end for step in explanation.steps for move in step.moved for end in (move.source, move.target)]
    return tuple(dict.fromkeys(device for device in (*moved, *found) if device and ", " not in device))


def _kind(step: Step) -> Work:
    return "compute" if step.name in {"parallel_apply", "plain call"} else "copy"


def _busy(step: Step) -> dict[str, str]:
    """Name the devices that a step has tensors on, and what came out of it there."""
    busy = {part.device: "" for part in step.given}
    busy |= {part.device: f"{part.label}, {part.num_bytes} bytes" for part in step.made}
    return {device: detail for device, detail in busy.items() if device and ", " not in device}


def execution_timeline(report: ExecReport) -> Timeline:
    """Draw every DataParallel call that a program made; calls that were split the same way are one block."""
    blocks: list[Block] = []
    start = 0.0
    for use in report.uses:
        for split in use.splits:
            blocks += _call_blocks(use, split, start)
            start += split.count
    lanes = tuple(dict.fromkeys(block.lane for block in blocks)) or tuple(report.devices)
    title = f"the DataParallel calls of {report.program}"
    return Timeline(title=title, axis=CALL_AXIS, is_time=False, lanes=lanes, blocks=tuple(blocks), arrows=())


def _call_blocks(use: Use, split: BatchGroup, start: float) -> list[Block]:
    calls = "call" if split.count == 1 else f"{split.count} calls split the same way, the first is call"
    name = f"{use.wrapper} of {use.module}"
    return [
        Block(
            lane=device,
            name=name,
            start=start,
            length=split.count,
            work="compute",
            detail=f"{calls} {split.first}: {run.rows} of {split.batch_size} rows",
        )
        for run in split.in_model
        for device in run.devices
    ]
