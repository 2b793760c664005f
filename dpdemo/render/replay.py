"""The verdict of a replay, in words."""

from collections.abc import Iterator
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from dpdemo.render.console import Canvas, grid
from dpdemo.render.files import Drawing
from dpdemo.render.markdown import escaped
from dpdemo.reports.devices import Devices
from dpdemo.reports.replay import Difference, Replay
from dpdemo.wording import counted, printable

_STYLES = {"identical": "bold green", "equal to round-off": "bold yellow", "different": "bold red"}


def drawing(replay: Replay) -> Drawing:
    """Make the drawing of a replay."""
    return Drawing.of(replay, "dpdemo replay", partial(_draw, replay), markdown=partial(_markdown, replay))


def _draw(replay: Replay, canvas: Canvas) -> Iterator[RenderableType]:
    yield canvas.text(headline(replay), style=_STYLES[replay.verdict])
    rows = grid("keep", "fold")
    for name, text in facts(replay):
        rows.add_row(Text(name), canvas.text(text))
    yield rows


def _markdown(replay: Replay) -> Iterator[str]:
    yield f"**{escaped(headline(replay))}**\n\n"
    for name, text in facts(replay):
        yield f"- {name}: {escaped(text)}\n"


def headline(replay: Replay) -> str:
    """Say the verdict: `Different: first at batch 2, output`."""
    said = replay.verdict[0].upper() + replay.verdict[1:]
    if replay.first is not None:
        return f"{said}: first at {place(replay.first)}"
    if replay.largest is not None:
        return f"{said}: {replay.num_inexact} of {replay.num_tensors} tensors have other bytes"
    return f"{said}: all {replay.num_tensors} tensors, {_batches(replay)}, forward and backward"


def place(difference: Difference) -> str:
    """Say where a difference is: `batch 2, gradient of fc.weight`; the weights are there from the start."""
    batch = f"batch {difference.batch}" if difference.batch else "the start"
    return f"{batch}, {printable(difference.what)}"


def facts(replay: Replay) -> Iterator[tuple[str, str]]:
    """Name both sides, and the numbers of the difference that matters most."""
    was = _where(replay.recorded_devices, replay.recorded_virtual)
    yield "recorded", f"on {was}, torch {printable(replay.recorded_torch)}"
    yield "replayed", f"on {_where(replay.devices, replay.virtual)}, torch {replay.torch}"
    if replay.first is not None:
        yield from _numbers(replay.first)
        yield (
            "compared",
            f"{replay.num_tensors} tensors up to there, {replay.num_inexact} of them equal to round-off only",
        )
    elif replay.largest is not None:
        yield "largest", place(replay.largest)
        yield from _numbers(replay.largest)
        yield (
            "compared",
            f"{replay.num_tensors} tensors, {_batches(replay)}: sums, magnitudes and sampled values",
        )


def _where(devices: Devices, virtual: bool) -> str:
    return ("virtual " if virtual else "") + str(devices)


def _batches(replay: Replay) -> str:
    return counted(replay.num_batches, "batch")


def _numbers(difference: Difference) -> Iterator[tuple[str, str]]:
    yield "expected", f"{difference.field} {printable(difference.expected)}"
    yield "got", f"{difference.field} {printable(difference.got)}"
    if difference.absolute is not None and difference.tolerance is not None:
        apart = f"{difference.absolute:.3g}, relative {difference.relative:.3g}"
        yield "apart", f"{apart}, allowed {difference.tolerance:.3g}"
