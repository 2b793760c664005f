"""The lines that PyTorch's DataParallel tutorial prints, in device order."""

from collections.abc import Iterator

from dpdemo.render.shapes import UNKNOWN
from dpdemo.render.split.lines import num_distinct
from dpdemo.reports.split import BatchGroup, Shapes, SplitReport, is_lone


def pieces(report: SplitReport) -> Iterator[str]:
    """Yield the tutorial's output for every batch of the epoch."""
    number = len(report.devices) if _has_gpu_a_rank(report) else num_distinct(report.devices)
    if number > 1:
        yield f"Let's use {number} GPUs!\n"
    for group in report.batches:
        for _ in range(group.count):
            yield from _batch(group)


def _has_gpu_a_rank(report: SplitReport) -> bool:
    return report.distribution is not None and report.devices.kind == "cuda"


def _batch(group: BatchGroup) -> Iterator[str]:
    for replica in group.in_model:
        # The tab and the underscore below are the tutorial's own.
        yield f"\tIn Model: input size {_size(replica.input)} output size {_size(replica.output)}\n"
    yield f"Outside: input size {_size(group.outside.input)} output_size {_size(group.outside.output)}\n"


def _size(shapes: Shapes) -> str:
    if not shapes:
        return UNKNOWN
    if is_lone(shapes):
        return f"torch.Size({list(shapes[0][1])})"
    return "{" + ", ".join(f"{path!r}: torch.Size({list(shape)})" for path, shape in shapes) + "}"
