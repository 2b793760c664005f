"""The result of `memory`: what each GPU holds at its fullest moment, and whether it fits, in a sentence."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dpdemo.config.fields import Config
from dpdemo.config.ranks import rows_per_rank, world_size
from dpdemo.results.batches import Shapes, bracketed
from dpdemo.results.devices import Devices
from dpdemo.results.formats import Row, in_json
from dpdemo.results.memorydata import KEYS, PARTS, Answer, Fit, GpuMemory, Phase, Training
from dpdemo.results.memorytable import GpuLine, gpu_lines, is_followed, remedies, room, tables, used_parts
from dpdemo.results.report import TableReport
from dpdemo.results.table import Block, Canvas, styled
from dpdemo.results.wrapping import NAMES, Wrapping
from dpdemo.sizes import size
from dpdemo.wording import counted

_ASSUMED = {
    "none": "no optimizer", "sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW",
    "adafactor": "Adafactor", "mean": "the mean as loss", "mse": "MSE loss",
    "cross-entropy": "cross-entropy loss", "output.loss": "the loss that the model returns",
    "before": "gradients freed before the forward pass", "after": "gradients freed after the forward pass",
    "to-zero": "gradients set to zero and kept",
}  # fmt: skip
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class MemoryReport(TableReport):
    """The memory of each GPU for one step at a batch size.

    `inputs` has the shapes of the whole batch by argument: positional ones by their number. With `fit` the
    step is that of the largest batch that fits; where none does, of the smallest that the model can run.
    """

    SCHEMA: ClassVar[str] = "dpdemo.memory/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("model", "fits", "answer")
    columns: ClassVar[tuple[str, ...]] = (
        *("device", "rows", *(f"{key}_bytes" for key in KEYS)),
        *("peak_bytes", "phase", "capacity_bytes", "spare_bytes", "fits"),
        *("reserved_bytes", "needed_bytes", "answer"),
    )
    config: Config
    training: Training
    batch_size: int
    num_parameters: int
    inputs: Shapes = field(
        metadata=in_json(form=lambda inputs: {name: list(shape) for name, shape in inputs})
    )
    gpus: tuple[GpuMemory, ...]
    fit: Fit | None = None
    card: str = ""
    notes: tuple[str, ...] = ()
    wrapping: Wrapping | None = None

    @property
    def model(self) -> str:
        """The model's name, or the user's `pkg.mod:factory`."""
        return self.config.model

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        return verdict(self)

    @property
    def num_devices(self) -> int:
        """How many GPUs or ranks take part; an uneven shard's rank may not be among `gpus`."""
        return len(self.gpus) if self.config.strategy == "dp" else world_size(self.config) or len(self.gpus)

    @property
    def fits(self) -> bool:
        """Whether the step runs on every GPU, even if tightly."""
        return all(gpu.fits for gpu in self.gpus)

    @property
    def answer(self) -> Answer:
        """The answer of the tightest GPU."""
        answers = [gpu.answer for gpu in self.gpus]
        return max(answers, key=("fits", "tight", "does not fit").index)

    @property
    def fullest(self) -> GpuMemory:
        """The GPU with the least room left; without capacities, the one that holds most."""
        if any(gpu.spare_bytes is not None for gpu in self.gpus):
            return min(self.gpus, key=lambda gpu: gpu.spare_bytes or 0)
        return max(self.gpus, key=lambda gpu: gpu.peak_bytes)

    def each_row(self) -> Iterator[Row]:
        """Yield a row per GPU; its capacity and what is spare are None where no capacity was given."""
        for gpu in self.gpus:
            room = (gpu.capacity_bytes, gpu.spare_bytes, gpu.fits)
            needs = (gpu.reserved_bytes, gpu.needed_bytes, gpu.answer)
            yield gpu.device, gpu.rows, *gpu.parts, gpu.peak_bytes, gpu.phase, *room, *needs

    def data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**TableReport.data(self), "fullest": self.fullest.device}

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield title and setting, the table, the bars, the answer, notes, and what would help."""
        yield styled(_title(self), "bold")
        yield styled(_setting(self), "dim")
        yield from tables(self.gpus, canvas)
        yield ()
        yield styled(verdict(self), _verdict_style(self))
        for note in _notes(self):
            yield styled(note, "dim")
        if self.fit is not None and self.fit.remedies:
            yield ()
            yield styled(f"What would help {self.fit.binding}", "bold")
            yield remedies(self.fit.remedies)


def _title(report: MemoryReport) -> str:
    kind = "an inference call" if report.training.inference else "a training step"
    number = report.num_devices
    if report.config.strategy != "dp":
        rows = f"batch size {report.batch_size} on each of {number} ranks"
        return f"Predicted: {kind} of {report.config.model}, {rows}"
    gpus = f"over {counted(number, 'GPU')}"
    return f"Predicted: {kind} of {report.config.model}, batch size {report.batch_size}, {gpus}"


def _setting(report: MemoryReport) -> str:
    """List the assumptions: devices, parameters, type, optimizer, loss and inputs."""
    config = report.config
    devices = Devices([gpu.device for gpu in report.gpus])
    if isinstance(config.gpus, tuple):
        devices = Devices.of("cuda", config.gpus)
    where = f"{report.num_devices} ranks" if config.nodes > 1 else str(devices)
    card = f" ({report.card})" if report.card else ""
    parts = [f"{NAMES[config.strategy]} on {where}{card}"]
    if report.wrapping is not None:
        parts += report.wrapping.words(config.strategy)
    if config.output_device is not None:
        parts.append(f"outputs on cuda:{config.output_device}")
    return ", ".join([*parts, *setting_parts(report)])


def setting_parts(report: MemoryReport) -> list[str]:
    """List the assumptions that no strategy changes: parameters, type, optimizer, loss and inputs."""
    config, training = report.config, report.training
    parts = [f"{number_text(report.num_parameters)} parameters"]
    parts.append(f"{config.dtype}{' under autocast' if training.amp else ''}")
    if not training.inference:
        parts += [
            f"{'fused ' if training.fused else ''}{_ASSUMED[training.optimizer]}",
            _ASSUMED[training.zero_grad],
        ]
        parts.append(_ASSUMED.get(training.loss, f"loss {training.loss}"))
    named_inputs = tuple(("" if name.isdecimal() else name, shape) for name, shape in report.inputs)
    parts.append(f"input {', '.join(bracketed(named_inputs))}")
    if config.dim:
        parts.append(f"split along dimension {config.dim}")
    return parts


def number_text(number: int) -> str:
    """Write a number as people say it: `1,234`, `124 million`, `1.24 billion`."""
    for unit, word in ((10**9, "billion"), (10**6, "million")):
        if number >= unit:
            amount = number / unit
            digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
            return f"{amount:,.{digits}f} {word}"
    return f"{number:,}"


def at_phase(phase: Phase) -> str:
    """Write `in forward`, `in the optimizer step`, `between steps`."""
    if phase == "between steps":
        return phase
    return f"in {'the ' if phase in {'loss', 'optimizer step'} else ''}{phase}"


def _notes(report: MemoryReport) -> Iterator[str]:
    """Explain the table: why a part is missing, and assumptions."""
    shown = set(used_parts(report.gpus))
    held = [gpu.largest for gpu in report.gpus if gpu.largest]
    absent = [
        f"{PARTS[part]} (up to {size(max(sizes))})"
        for part, sizes in enumerate(zip(*held, strict=True))
        if any(sizes) and part not in shown
    ]
    if absent:
        yield f"Not live at the peaks: {', '.join(absent)}."
    if is_followed(report.gpus):
        context = size(max(gpu.context_bytes for gpu in report.gpus))
        yield f"nvidia-smi shows what PyTorch reserved and the CUDA context, taken for {context} (--reserve)."
    yield from report.notes


def verdict(report: MemoryReport) -> str:
    """Answer in a sentence: whether it fits, where it is tightest, or which GPU lacks how much, and when."""
    if report.fit is not None:
        return _largest(report, report.fit)
    lines = gpu_lines(report.gpus)
    if not report.fits:
        return f"It does not fit: {_lacking(lines)}."
    line = next(line for line in lines if replace(line.gpu, device="") == replace(report.fullest, device=""))
    when = at_phase(line.gpu.phase)
    if line.gpu.spare_bytes is None:
        holds = "each hold" if line.count > 1 else "holds"
        return f"{line.label} {holds} most: {size(line.gpu.peak_bytes)}, {when}."
    if report.answer == "tight":
        tight = next(each for each in lines if each.gpu.answer == "tight")
        over = size(-(tight.gpu.spare_bytes or 0))
        return (
            f"It is tight: {tight.heading} would take {over} more than there is, unless PyTorch "
            "gives unused memory back, which it tries before it fails."
        )
    return f"It fits: {size(line.gpu.spare_bytes)} left on {line.heading}, {when}."


def _lacking(lines: list[GpuLine]) -> str:
    short = sorted((line for line in lines if not line.gpu.fits), key=lambda line: line.gpu.spare_bytes or 0)
    parts = []
    for line in short[:_MOST_NAMED]:
        lacks = f"lack {size(-(line.gpu.spare_bytes or 0))} each" if line.count > 1 else room(line.gpu)
        parts.append(f"{line.label} {lacks} {at_phase(line.gpu.phase)}")
    if rest := sum(line.count for line in short[_MOST_NAMED:]):
        parts.append(f"{rest} more GPU{'' if rest == 1 else 's'} less")
    return "; ".join(parts)


def _falls_short(report: MemoryReport) -> bool:
    """Return whether the user asked for a larger batch than the largest that fits."""
    config = report.config
    if report.fit is None or "batch_size" not in config.given:
        return False
    is_ranks = config.strategy != "dp"
    return report.fit.largest < (rows_per_rank(config, report.num_devices) if is_ranks else config.batch_size)


def _largest(report: MemoryReport, fit: Fit) -> str:
    if not fit.largest:
        lacks = f"{fit.binding} lacks {size(fit.missing_bytes)} {at_phase(fit.phase)}"
        return f"It does not fit, not even one sample: {lacks}."
    config = report.config
    each = "" if config.strategy == "dp" else " of each rank"
    margin = f", give or take {fit.margin}" if fit.margin else ""
    more = f"then {fit.binding} is full {at_phase(fit.phase)}"
    if "batch_size" not in config.given:
        return f"The largest batch{each} that fits is {fit.largest}{margin}: {more}."
    fits = "does not fit" if _falls_short(report) else "fits"
    return f"Batch {config.batch_size}{each} {fits}; the largest that does is {fit.largest}{margin}: {more}."


def _verdict_style(report: MemoryReport) -> str:
    if not report.fits:
        return "bold red"
    if _falls_short(report) or report.answer == "tight":
        return "bold yellow"
    return "bold" if report.fullest.capacity_bytes is None else "bold green"
