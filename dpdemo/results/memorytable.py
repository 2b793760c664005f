"""The table of memory: a row per part, a column per GPU, and a bar per GPU below.

The letters before the rows are those of the bars, so the table is their legend. GPUs that hold the same share
a column, so that 64 GPUs are a few; columns that do not fit into the width continue below.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpdemo.results.bars import lettered
from dpdemo.results.devices import alike, label
from dpdemo.results.memorydata import PARTS, GpuMemory, Remedy
from dpdemo.results.table import Block, Canvas, Line, Table, right, styled
from dpdemo.sizes import size
from dpdemo.wording import percent

SIGNS = (
    *(("P", "bright_blue"), ("G", "cyan"), ("S", "magenta"), ("B", "bright_green"), ("I", "green")),
    *(("A", "yellow"), ("R", "bright_cyan"), ("O", "red"), ("T", "white"), ("W", "bright_black")),
    *(("C", "bright_red"), ("D", "bright_magenta"), ("F", "bright_yellow"), ("U", "blue")),
)
"""The letter and the colour of each of PARTS; the colour tells neighbours apart, and nothing else."""
_ROOM = {"fits": "green", "tight": "bold yellow", "does not fit": "bold red"}
_MARK = styled("┃", "bold red")
"""The mark at which a GPU's capacity ends."""
_LABEL = len("P ") + max(map(len, PARTS))


@dataclass(frozen=True, slots=True)
class GpuLine:
    """A GPU, or `count` of them with the same rows, parts, phase and capacity; `gpu` is the first of them."""

    label: str
    count: int
    gpu: GpuMemory

    @property
    def heading(self) -> str:
        """The head of its column."""
        return f"{self.label} each" if self.count > 1 else self.label


def gpu_lines(gpus: Sequence[GpuMemory]) -> list[GpuLine]:
    """Group the GPUs that hold the same, in the order of the first of each group."""
    groups = alike(gpus, lambda gpu: replace(gpu, device="")).values()
    return [GpuLine(label([gpu.device for gpu in same]), len(same), same[0]) for same in groups]


def used_parts(gpus: Sequence[GpuMemory]) -> list[int]:
    """Return the positions in PARTS of parts that any GPU has at its fullest moment."""
    return [part for part in range(len(PARTS)) if any(gpu.parts[part] for gpu in gpus)]


def is_followed(gpus: Sequence[GpuMemory]) -> bool:
    """Return whether it is known what PyTorch would reserve."""
    return any(gpu.reserved_bytes for gpu in gpus)


def room(gpu: GpuMemory) -> str:
    """Write `3.2 GiB left` or `lacks 1.4 GiB`; nothing where no capacity is known."""
    if gpu.spare_bytes is None:
        return ""
    if gpu.answer == "tight":
        return f"tight by {size(-gpu.spare_bytes)}"
    return f"{size(gpu.spare_bytes)} left" if gpu.fits else f"lacks {size(-gpu.spare_bytes)}"


def tables(gpus: Sequence[GpuMemory], canvas: Canvas) -> Iterator[Block]:
    """Yield a table for as many columns as fit, and then the bars."""
    lines = gpu_lines(gpus)
    for band in table_of(lines, [], canvas):
        yield ()
        yield band
    if canvas.draws_bars:
        yield ()
        yield bars(lines, canvas)


def table_of(lines: list[GpuLine], extra: list[tuple[str, list[str]]], canvas: Canvas) -> Iterator[Table]:
    """Yield a table for as many columns as fit; `extra` are further rows, a name and a cell for each line."""
    shown = [line.gpu for line in lines]
    yield from _table(lines, [*_rows(shown, shown), *extra], has_signs=canvas.draws_bars).bands(canvas)


def _rows(gpus: Sequence[GpuMemory], shown: Sequence[GpuMemory]) -> list[tuple[str, list[str]]]:
    """List the facts to show: each with its name, and a cell for each GPU shown."""
    found = [
        ("rows", [str(gpu.rows) for gpu in shown]),
        *(
            (PARTS[part], [size(gpu.parts[part]) if gpu.parts[part] else "–" for gpu in shown])
            for part in used_parts(gpus)
        ),
        ("peak", [size(gpu.peak_bytes) for gpu in shown]),
        ("in phase", [gpu.phase if gpu.peak_bytes else "–" for gpu in shown]),
    ]
    if is_followed(gpus):
        found.append(("reserved", [size(gpu.reserved_bytes) for gpu in shown]))
        found.append(("nvidia-smi", [size(gpu.needed_bytes) for gpu in shown]))
    if any(gpu.capacity_bytes is not None for gpu in gpus):
        found.append(("capacity", [size(gpu.capacity_bytes or 0) for gpu in shown]))
        found.append(("room", [room(gpu) for gpu in shown]))
    return found


def _table(lines: list[GpuLine], rows: list[tuple[str, list[str]]], *, has_signs: bool) -> Table:
    head = ("", *(line.heading for line in lines))
    peak = next(number for number, (name, _) in enumerate(rows) if name == "peak")
    table = Table((_LABEL, *right(len(lines))), head=head, has_rule=True, rules=frozenset({peak}))
    for name, cells in rows:
        style = "bold" if name == "peak" else ""
        styles = [_ROOM[line.gpu.answer] if name == "room" else style for line in lines]
        texts = (styled(cell, each) for cell, each in zip(cells, styles, strict=True))
        table.add((_sign(name) if has_signs else ()) + styled(name, style), *texts)
    return table


def _sign(name: str) -> Line:
    """Return the sign of a row in the bars, and a blank."""
    if name in PARTS:
        letter, colour = SIGNS[PARTS.index(name)]
        return *styled(letter, f"black on {colour}"), *styled(" ")
    return _MARK + styled(" ") if name == "capacity" else styled("  ")


def bars(lines: list[GpuLine], canvas: Canvas) -> Table:
    """Return a bar for each line."""
    table = Table(("fold", "right"))
    for line in lines:
        end = share(line.gpu) or size(line.gpu.peak_bytes)
        table.add(line.label, styled(end, "" if line.gpu.fits else "bold red"))
    width = table.bar_width(canvas)
    scale = max(1, *(max(line.gpu.peak_bytes, line.gpu.capacity_bytes or 0) for line in lines))
    return table.with_bars(1, (bar(line.gpu, scale, width) for line in lines), width)


def bar(gpu: GpuMemory, scale: int, width: int) -> Line:
    """Draw a GPU's parts in `width` cells, of which `scale` bytes would take all: `P██G██A███████░░░┃`.

    Shade is free memory; anything behind the mark does not fit, and shows there however little it is.
    """
    parts = [(*sign, num_bytes) for sign, num_bytes in zip(SIGNS, gpu.parts, strict=True)]
    if gpu.capacity_bytes is None:
        return lettered(parts, scale, width)
    cells = width - 1  # the mark takes one
    drawn = lettered(parts, scale, cells)
    end = round(gpu.capacity_bytes * cells / scale)
    if gpu.peak_bytes <= gpu.capacity_bytes:
        drawn += (("░", "dim"),) * (end - len(drawn))
    else:
        drawn = drawn or ((SIGNS[gpu.parts.index(max(gpu.parts))][0], "bold red"),)
        end = min(end, len(drawn) - 1)
    return (*drawn[:end], *_MARK, *drawn[end:])


def share(gpu: GpuMemory) -> str:
    """Write the share of its capacity that a GPU needs: 100 % only if it is just that."""
    if gpu.capacity_bytes is None:
        return ""
    needed = gpu.needed_bytes / gpu.capacity_bytes
    if needed <= 1:
        return percent(needed)
    return f"{100 * needed:.0f} %" if needed >= 1.005 else "> 100 %"


def remedies(found: Sequence[Remedy]) -> Table:
    """Return a line for each change that would help."""
    rows = Table(("fold", "fold", "fold"))
    for remedy in found:
        gain = styled(f"gains {size(remedy.gain_bytes)}", "bold green")
        rows.add(f"  {remedy.name}", gain, styled(remedy.how, "dim"))
    return rows
