"""The list of visible devices, and DataParallel's balance rule applied to it."""

from collections.abc import Iterator, Sequence
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from dpdemo.arithmetic.balance import THRESHOLD, VisibleDevice
from dpdemo.render.console import Canvas, grid
from dpdemo.render.files import Drawing
from dpdemo.render.markdown import escaped, table
from dpdemo.reports.visible import VisibleDevices


def drawing(found: VisibleDevices) -> Drawing:
    """Make the drawing of the visible devices."""
    return Drawing.of(found, "dpdemo devices", partial(_draw, found), markdown=partial(_markdown, found))


def _draw(found: VisibleDevices, canvas: Canvas) -> Iterator[RenderableType]:
    if found.devices:
        rows = grid("keep", "fold", "right", "right")
        rows.add_row(*(Text(name, "bold") for name in _HEAD))
        for cells in _rows(found.devices):
            rows.add_row(*map(canvas.text, cells))
        yield rows
    yield describe_balance(found)


def _markdown(found: VisibleDevices) -> Iterator[str]:
    if found.devices:
        yield from table(_HEAD, [list(map(escaped, cells)) for cells in _rows(found.devices)], right={2, 3})
        yield "\n"
    yield escaped(describe_balance(found)) + "\n"


_HEAD = ("device", "model", "memory", "multiprocessors")


def _rows(devices: Sequence[VisibleDevice]) -> Iterator[tuple[str, ...]]:
    for device in devices:
        memory = f"{device.memory_bytes / 2**30:.1f} GiB"
        yield device.name, device.model, memory, str(device.multiprocessors)


def describe_balance(found: VisibleDevices) -> str:
    """Say in one sentence whether DataParallel over all these devices would warn, and about which pair."""
    devices, imbalance = found.devices, found.imbalance
    if not devices:
        return "No GPU is visible; DataParallel would make one plain call on the CPU."
    if imbalance is None:
        return (
            "Balanced: DataParallel would not warn."
            if len(devices) > 1
            else "One GPU has nothing to balance."
        )
    others = [device.name.partition(":")[2] for device in devices if device is not imbalance.smaller]
    return (
        f"Imbalanced: {imbalance.smaller.name} has {imbalance.ratio:.0%} of the {imbalance.what} of "
        f"{imbalance.larger.name}, and DataParallel warns under {THRESHOLD:.0%}. "
        f"--gpus {','.join(others)} leaves it out."
    )
