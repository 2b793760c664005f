"""DataParallel against DistributedDataParallel for one config: what differs, and the gradients of both.

The facts are predictions, the gradients are really computed, and what is said of a difference is checked: a
single device that weighs its samples as a strategy does must come to the same gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import prod

from torch import nn

from dpdemo.catalogue import MODELS
from dpdemo.config import Config, make_config
from dpdemo.contrast import Comparison, Fact, GradientCheck
from dpdemo.devices import Devices
from dpdemo.errors import UsageError
from dpdemo.models import DTYPES, build
from dpdemo.prediction import predict
from dpdemo.report import Shapes, SplitReport
from dpdemo.runner.dp import place
from dpdemo.runner.gradients import Gradients, Part, on_data_parallel, on_one_device, on_ranks
from dpdemo.sampler import distribute
from dpdemo.split import split_batch
from dpdemo.strategy import TIMEOUT_SECONDS

TOLERANCE = 1e-4
"""Relative: float32 sums in another order differ by less, and any two weightings by far more."""
DEFAULT_GPUS = 4
_BATCHNORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of the module that is split."""

    parameters: int
    buffers: int
    element: int
    has_batchnorm: bool


@dataclass(frozen=True)
class _Way:
    """A way to come to gradients: the parts it takes the samples in, and which samples weigh more."""

    name: str
    parts: Sequence[Part]
    heavier: str
    found: Gradients


def compare(config: Config, timeout: float = TIMEOUT_SECONDS) -> Comparison:
    """Compare both strategies over as many GPUs; the gradients are computed on the CPU.

    Raises:
        UsageError: for a config of several nodes, which DataParallel cannot have.
        RunError: if the model fails.

    """
    if config.nodes > 1:
        raise UsageError(
            f"expected one node, on which both strategies can run, got {config.nodes} - at key `nodes`"
        )
    dp, ddp = both(config)
    first = min(config.batch_size, config.data_size)
    sizes = _measure(dp.config)
    return Comparison(
        config=config,
        dp=dp,
        ddp=ddp,
        facts=tuple(_facts(dp, ddp, sizes)),
        samples=first,
        gradients=tuple(_check_gradients(dp.config, first, len(dp.devices), sizes, timeout)),
    )


def both(config: Config) -> tuple[SplitReport, SplitReport]:
    """Predict the config under both strategies."""
    kept = config.model_dump(exclude_unset=True) | {"gpus": config.gpus or config.processes or DEFAULT_GPUS}
    kept.pop("processes", None)
    of_ddp = {"strategy", "nodes", "batch_size_is", "sampler_drop_last"}
    dp = make_config({key: value for key, value in kept.items() if key not in of_ddp})
    return predict(dp), predict(make_config({**kept, "strategy": "ddp"}))


def _measure(config: Config) -> _Sizes:
    built = build(config, place(config, Devices.cpu()))
    parameters, buffers = list(built.split.parameters()), list(built.split.buffers())
    return _Sizes(
        sum(tensor.numel() * tensor.element_size() for tensor in parameters),
        sum(tensor.numel() * tensor.element_size() for tensor in buffers),
        DTYPES[config.dtype].itemsize,
        any(isinstance(module, _BATCHNORMS) for module in built.split.modules()),
    )


def _facts(dp: SplitReport, ddp: SplitReport, sizes: _Sizes) -> list[Fact]:
    distribution = ddp.distribution
    assert distribution is not None  # noqa: S101 - a prediction of ddp
    ranks = distribution.world_size
    chunks = split_batch(dp.batches[0].batch_size, len(dp.devices))
    own = ddp.batches[0].in_model[0].rows
    return [
        Fact("Processes", "1", str(ranks)),
        Fact("Rows a device", _rows(chunks.sizes(), chunks.num_idle), f"{own} on each of {ranks}"),
        Fact("Samples a step", str(dp.config.batch_size), str(distribution.global_batch_size)),
        Fact("Steps an epoch", str(dp.totals.batches), str(ddp.totals.batches)),
        Fact("Samples drawn", _drawn(dp.totals.samples, 0, _left_out(dp)), _drawn(
            distribution.drawn, distribution.num_repeated, distribution.num_dropped)),
        Fact("Gradient of a mean loss", "of the whole batch", "mean of the ranks' own means"),
        Fact("Gradient of a summed loss", "sum over the batch", f"sum over the batch ÷ {ranks}"),
        Fact("Weight of a sample", _dp_weight(dp), _ddp_weight(distribution.num_repeated)),
        *_batchnorm(sizes, ranks),
        *_bytes(dp, ddp, sizes),
        *_traces(dp, ddp),
    ]  # fmt: skip


def _rows(sizes: tuple[int, ...], num_idle: int) -> str:
    listed = ", ".join(map(str, sizes)) if len(sizes) <= 8 else f"{sizes[0]} × {len(sizes) - 1}, {sizes[-1]}"
    return listed + (f" and {num_idle} idle" if num_idle else "")


def _left_out(report: SplitReport) -> int:
    return report.config.data_size - report.totals.samples


def _drawn(drawn: int, repeated: int, dropped: int) -> str:
    return f"{drawn} ({repeated} repeated, {dropped} dropped)"


def _dp_weight(report: SplitReport) -> str:
    weight = report.sample_weight
    return "equal" if weight == 1 else f"equal (loss inside: ×{weight:.2f})"


def _ddp_weight(num_repeated: int) -> str:
    return f"equal, but {num_repeated} are repeated" if num_repeated else "equal"


def _batchnorm(sizes: _Sizes, ranks: int) -> list[Fact]:
    if not sizes.has_batchnorm:
        return [Fact("BatchNorm", "none in this model", "none in this model")]
    return [
        Fact("BatchNorm's statistics", "of each chunk alone", "of each rank alone (SyncBatchNorm: of all)"),
        Fact(
            "BatchNorm's running mean", "device 0's chunk", f"rank 0's, sent to {ranks - 1} ranks each step"
        ),
    ]


def _bytes(dp: SplitReport, ddp: SplitReport, sizes: _Sizes) -> list[Fact]:
    group, own = dp.batches[0], ddp.batches[0].in_model[0]
    replicas, ranks = group.num_replicas, len(ddp.devices)
    away = replicas - 1
    runs = [(len(run), _volume(run.input, sizes), _volume(run.output, sizes)) for run in group.in_model]
    scattered = sum(count * given for count, given, _ in runs) - runs[0][1]
    gathered = sum(count * returned for count, _, returned in runs) - runs[0][2]
    whole_in = sum(count * given for count, given, _ in runs)
    whole_out = sum(count * returned for count, _, returned in runs)
    # a ring sends each number 2 (n - 1) times over all links together
    reduced = 2 * (ranks - 1) * sizes.parameters
    twice = 2 * sizes.parameters + sizes.buffers
    return [
        Fact("Bytes a step: scatter", _size(scattered), "0 B"),
        Fact("Bytes a step: broadcast", _size(away * (sizes.parameters + sizes.buffers)),
             _size((ranks - 1) * sizes.buffers) + (" (buffers)" if sizes.buffers else "")),
        Fact("Bytes a step: gather", _size(gathered), "0 B"),
        Fact("Bytes a step: gradients", f"{_size(away * sizes.parameters)} reduce-add",
             f"{_size(reduced)} all-reduce (ring)"),
        Fact("Memory on device 0 (≥)", _size(twice + whole_in + whole_out),
             _size(twice + sizes.parameters + _volume(own.input, sizes) + _volume(own.output, sizes))),
    ]  # fmt: skip


def _traces(dp: SplitReport, ddp: SplitReport) -> list[Fact]:
    if dp.trace is None or ddp.trace is None:
        return []
    of_dp = "; ".join(f"batch {at.batch}, {at.device}, row {at.row}" for at in dp.trace.stops)
    of_ddp = "; ".join(f"batch {at.batch}, rank {at.replica}, row {at.row}" for at in ddp.trace.stops)
    return [Fact(f"Sample {dp.trace.sample}", of_dp or "left out", of_ddp or "left out")]


def _volume(shapes: Shapes, sizes: _Sizes) -> int:
    return sum(prod(shape) for _, shape in shapes) * sizes.element


def _size(number: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number} B" if unit == "B" else f"{number:.1f} {unit}"
        number = number / 1024  # type: ignore[assignment]  # a fraction from here on
    raise AssertionError


def _check_gradients(
    config: Config, rows: int, num_gpus: int, sizes: _Sizes, timeout: float
) -> list[GradientCheck]:
    """Compute the gradients of the first `rows` samples in every way, and explain what differs."""
    samples = range(rows)
    single = on_one_device(config, [(samples, 1 / rows)])
    return [
        GradientCheck(way.name, _difference(way.found, single), _why(config, single, way, sizes))
        for way in (*_dp_ways(config, samples, num_gpus), *_ddp_ways(config, samples, num_gpus, timeout))
    ]


def _dp_ways(config: Config, samples: range, num_gpus: int) -> Iterator[_Way]:
    chunks, rows = _chunks(len(samples), num_gpus), len(samples)
    yield _Way(
        "DataParallel, loss of the gathered outputs",
        [(chunk, 1 / rows) for chunk in chunks],
        "",
        on_data_parallel(config, samples, num_gpus, "mean", loss_inside=False),
    )
    if config.is_builtin and MODELS[config.model].wrapped:
        return  # a replica there sees neither the model's output nor a loss
    yield _Way(
        "DataParallel, loss inside each replica",
        [(chunk, 1 / (len(chunks) * len(chunk))) for chunk in chunks],
        f"samples of the short chunk of {len(chunks[-1])}",
        on_data_parallel(config, samples, num_gpus, "mean", loss_inside=True),
    )


def _ddp_ways(config: Config, samples: range, num_gpus: int, timeout: float) -> Iterator[_Way]:
    epoch = distribute(len(samples), num_gpus, len(samples))
    parts: list[Part] = [(list(epoch.positions(rank)), 1 / epoch.drawn) for rank in range(num_gpus)]
    repeats = f"{epoch.num_repeated} of {len(samples)} samples, drawn again to fill the ranks,"
    found = on_ranks(_one_step(config, len(samples), num_gpus), num_gpus, timedelta(seconds=timeout))
    yield _Way("DDP, mean loss of each rank", parts, repeats, found["mean"])
    # a sum over all draws, which DDP divides by the ranks: made comparable with a mean
    name = f"DDP, summed loss, × {num_gpus} ranks ÷ {epoch.drawn} draws"
    scaled = {key: gradient * (num_gpus / epoch.drawn) for key, gradient in found["sum"].items()}
    yield _Way(name, parts, repeats, scaled)


def _chunks(rows: int, num_gpus: int) -> list[range]:
    sizes = split_batch(rows, num_gpus).sizes()
    return [range(sum(sizes[:number]), sum(sizes[: number + 1])) for number in range(len(sizes))]


def _one_step(config: Config, rows: int, num_ranks: int) -> Config:
    """Make the config whose whole epoch is one batch a rank."""
    kept = config.model_dump(exclude_unset=True) | {"strategy": "ddp", "processes": num_ranks, "gpus": None}
    dropped = {"shuffle", "drop_last", "output_device", "trace_sample"}
    values = {key: value for key, value in kept.items() if key not in dropped}
    return make_config({**values, "data_size": rows, "batch_size": rows})


def _difference(found: Gradients, single: Gradients) -> float:
    """Compare with the largest number of the single device's gradient."""
    largest = max((float(gradient.abs().max()) for gradient in single.values()), default=0.0)
    far = max((float((found[name] - single[name]).abs().max()) for name in single), default=0.0)
    return far / largest if largest else far


def _why(config: Config, single: Gradients, way: _Way, sizes: _Sizes) -> str:
    """Find which way of going through the samples on one device comes to the same gradients."""
    if _difference(way.found, single) < TOLERANCE:
        return "the same as on one device"
    weights = _weights(way.parts)
    ratio = max(weights) / min(weights)
    heavier = f"{way.heavier} count ×{ratio:.2f}" if ratio > 1 + TOLERANCE else ""
    together: list[Part] = [([sample], weight) for sample, weight in enumerate(weights)]
    parts = way.parts if sizes.has_batchnorm else together
    if _difference(way.found, on_one_device(config, parts)) > TOLERANCE:
        return "not explained by the weights of the samples"
    alone = "BatchNorm sees each part of the batch alone" if sizes.has_batchnorm else ""
    return "; ".join(filter(None, (alone, heavier)))


def _weights(parts: Sequence[Part]) -> list[float]:
    """Add up the weight of each sample over all the times that it is drawn."""
    weights = [0.0] * (1 + max(max(samples) for samples, _ in parts))
    for samples, weight in parts:
        for sample in samples:
            weights[sample] += weight
    return weights
