"""The sentences around a memory report, and the texts of its cells, without any drawing."""

from dataclasses import replace

from dpdemo.config.weights import is_weighted, written
from dpdemo.results.batches import Shapes, bracketed
from dpdemo.results.devices import Devices
from dpdemo.results.memorydata import PARTS, Fit, GpuMemory, MemoryData, Remedy
from dpdemo.results.memorylines import GpuLine, gpu_lines, used_parts
from dpdemo.sizes import size
from dpdemo.wording import counted, printable

_OPTIMIZERS = {
    "none": "no optimizer", "sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW",
    "adafactor": "Adafactor",
}  # fmt: skip
_LOSSES = {
    "mean": "the mean as loss", "mse": "MSE loss", "cross-entropy": "cross-entropy loss",
    "output.loss": "the loss that the model returns",
}  # fmt: skip
_ZERO_GRAD = {
    "before": "gradients freed before the forward pass", "after": "gradients freed after the forward pass",
    "to-zero": "gradients set to zero and kept",
}  # fmt: skip
_MOST_NAMED = 3


def title(report: MemoryData) -> str:
    """Head the report: `Predicted: a training step of linear, batch size 30, over 4 GPUs`."""
    kind = "an inference call" if report.training.inference else "a training step"
    gpus = f"over {counted(len(report.gpus), 'GPU')}"
    return f"Predicted: {kind} of {printable(report.config.model)}, batch size {report.batch_size}, {gpus}"


def setting(report: MemoryData) -> str:
    """List the assumptions: devices, parameters, type, optimizer, loss and inputs."""
    config, training = report.config, report.training
    weighted = "Weighted" if is_weighted(config) else ""
    card = f" ({report.card})" if report.card else ""
    parts = [f"{weighted}DataParallel on {_devices(report)}{card}"]
    if config.output_device is not None:
        parts.append(f"outputs on cuda:{config.output_device}")
    parts.append(f"{number_text(report.num_parameters)} parameters")
    parts.append(f"{config.dtype}{' under autocast' if training.amp else ''}")
    if not training.inference:
        parts.append(_OPTIMIZERS[training.optimizer])
        parts.append(_ZERO_GRAD[training.zero_grad])
        parts.append(_LOSSES.get(training.loss, f"loss {printable(training.loss)}"))
    parts.append(f"input {', '.join(bracketed(_named(report.inputs)))}")
    if config.dim:
        parts.append(f"split along dimension {config.dim}")
    return ", ".join([*parts, *_cut(report)])


def _cut(report: MemoryData) -> list[str]:
    """Name the options that cut the batch, if torch's own rule does not."""
    config = report.config
    if not is_weighted(config):
        return []
    if isinstance(config.weights, tuple):
        return [f"--weights {written(config.weights)}"]
    num_gpus = config.gpus if isinstance(config.gpus, int) else len(config.gpus or ())
    return [
        f"--batch-size {report.batch_size} --chunks {written([gpu.rows for gpu in report.gpus[:num_gpus]])}"
    ]


def _named(inputs: Shapes) -> Shapes:
    """Leave out the names of positional arguments, which are numbers."""
    return tuple(("" if name.isdecimal() else name, shape) for name, shape in inputs)


def _devices(report: MemoryData) -> Devices:
    if isinstance(report.config.gpus, tuple):
        return Devices.of("cuda", report.config.gpus)
    return Devices([gpu.device for gpu in report.gpus])


def number_text(number: int) -> str:
    """Write a number as people say it: `1,234`, `124 million`, `1.24 billion`."""
    for unit, word in ((10**9, "billion"), (10**6, "million")):
        if number >= unit:
            amount = number / unit
            digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
            return f"{amount:,.{digits}f} {word}"
    return f"{number:,}"


def at_phase(gpu: GpuMemory | Fit) -> str:
    """Write `in forward`, `in the optimizer step`, `between steps`."""
    if gpu.phase == "between steps":
        return gpu.phase
    article = "the " if gpu.phase in {"loss", "optimizer step"} else ""
    return f"in {article}{gpu.phase}"


def room(gpu: GpuMemory) -> str:
    """Write `3.2 GiB left` or `lacks 1.4 GiB`; nothing where no capacity is known."""
    if gpu.spare_bytes is None:
        return ""
    if gpu.answer == "tight":
        return f"tight by {size(-gpu.spare_bytes)}"
    return f"{size(gpu.spare_bytes)} left" if gpu.fits else f"lacks {size(-gpu.spare_bytes)}"


def share(gpu: GpuMemory) -> str:
    """Write which share of its capacity a GPU holds: not 100 % unless it is just that."""
    if gpu.capacity_bytes is None:
        return ""
    percent = 100 * gpu.needed_bytes / gpu.capacity_bytes
    if round(percent) == 100 and gpu.spare_bytes:
        return "> 100 %" if percent > 100 else "< 100 %"
    if 0 < percent < 1:
        return "< 1 %"
    return f"{percent:.0f} %"


def heading(line: GpuLine) -> str:
    """Head the column of one GPU, or of several alike."""
    return f"{line.label} each" if line.count > 1 else line.label


def row_names(report: MemoryData) -> list[str]:
    """Name the facts of each GPU that are shown, in order."""
    known = report.fullest.capacity_bytes is not None
    parts = [PARTS[part] for part in used_parts(report)]
    needs = ("reserved", "nvidia-smi") if _is_followed(report) else ()
    return ["rows", *parts, "peak", "in phase", *needs, *(("capacity", "room") if known else ())]


def _is_followed(report: MemoryData) -> bool:
    """Return whether it is known what PyTorch would reserve."""
    return any(gpu.reserved_bytes for gpu in report.gpus)


def column(report: MemoryData, line: GpuLine) -> list[str]:
    """Write the facts of one GPU, or of several alike, in the order of `row_names`."""
    gpu = line.gpu
    held = [gpu.parts[part] for part in used_parts(report)]
    sizes = [size(num_bytes) if num_bytes else "–" for num_bytes in held]
    capacity = [] if gpu.capacity_bytes is None else [size(gpu.capacity_bytes), room(gpu)]
    phase = gpu.phase if gpu.peak_bytes else "–"
    needs = [size(gpu.reserved_bytes), size(gpu.needed_bytes)] if _is_followed(report) else []
    return [str(gpu.rows), *sizes, size(gpu.peak_bytes), phase, *needs, *capacity]


def notes(report: MemoryData) -> list[str]:
    """Explain the table: why a part is missing, and assumptions."""
    found = []
    shown = set(used_parts(report))
    held = [gpu.largest for gpu in report.gpus if gpu.largest]
    most = [max(sizes) for sizes in zip(*held, strict=True)]
    absent = [
        f"{PARTS[part]} (up to {size(num_bytes)})"
        for part, num_bytes in enumerate(most)
        if num_bytes and part not in shown
    ]
    if absent:
        found.append(f"Not there at the peaks, but at other moments: {', '.join(absent)}.")
    if _is_followed(report):
        context = max(gpu.context_bytes for gpu in report.gpus)
        found.append(
            f"nvidia-smi would show what PyTorch reserved and the CUDA context, taken for {size(context)} "
            "(--reserve)."
        )
    return [*found, *report.notes]


def verdict(report: MemoryData) -> str:
    """Answer in a sentence: whether it fits, where it is tightest, or which GPU lacks how much, and when."""
    if report.fit is not None:
        return _largest(report, report.fit)
    lines = gpu_lines(report)
    if not report.fits:
        return f"It does not fit: {_lacking(lines)}."
    line = next(line for line in lines if replace(line.gpu, device="") == replace(report.fullest, device=""))
    if line.gpu.spare_bytes is None:
        holds = "each hold" if line.count > 1 else "holds"
        return f"{line.label} {holds} most: {size(line.gpu.peak_bytes)}, {at_phase(line.gpu)}."
    if report.answer == "tight":
        tight = next(each for each in lines if each.gpu.answer == "tight")
        over = size(-(tight.gpu.spare_bytes or 0))
        return (
            f"It is tight: {heading(tight)} would take {over} more than there is, unless PyTorch "
            "gives unused memory back, which it tries before it fails."
        )
    return f"It fits: {size(line.gpu.spare_bytes)} left on {heading(line)}, {at_phase(line.gpu)}."


def _lacking(lines: list[GpuLine]) -> str:
    short = sorted((line for line in lines if not line.gpu.fits), key=lambda line: line.gpu.spare_bytes or 0)
    parts = []
    for line in short[:_MOST_NAMED]:
        lacks = f"lack {size(-(line.gpu.spare_bytes or 0))} each" if line.count > 1 else room(line.gpu)
        parts.append(f"{line.label} {lacks} {at_phase(line.gpu)}")
    if rest := sum(line.count for line in short[_MOST_NAMED:]):
        parts.append(f"{rest} more GPU{'' if rest == 1 else 's'} less")
    return "; ".join(parts)


def falls_short(report: MemoryData) -> bool:
    """Return whether the user asked for a larger batch than the largest that fits."""
    config = report.config
    is_asked = "batch_size" in config.given
    return report.fit is not None and is_asked and report.fit.largest < config.batch_size


def _largest(report: MemoryData, fit: Fit) -> str:
    binds = f"{fit.binding} lacks {size(fit.missing_bytes)} {at_phase(fit)}"
    if not fit.largest:
        return f"It does not fit, not even one sample: {binds}."
    config = report.config
    next_one = f"at {fit.largest + 1} {binds}"
    if "batch_size" not in config.given:
        return f"The largest batch that fits is {fit.largest}: {next_one}."
    fits = "does not fit" if falls_short(report) else "fits"
    return f"Batch {config.batch_size} {fits}; the largest that does is {fit.largest}: {next_one}."


def remedies_heading(fit: Fit) -> str:
    """Head the list of what would help."""
    return f"What would help {fit.binding}"


def gain(remedy: Remedy) -> str:
    """Write how much more room the tightest GPU has with a remedy."""
    return f"gains {size(remedy.gain_bytes)}"


def fullest_then(remedy: Remedy) -> str:
    """Name the tightest GPU with a remedy."""
    return f"then {remedy.fullest} is the tightest: {size(remedy.peak_bytes)}"
