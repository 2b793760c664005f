"""DataParallel against DistributedDataParallel for one config: what differs, and the gradients of both.

The facts are predictions, the gradients are really computed, and what is said of a difference is checked: a
single device that weighs its samples as a strategy does must arrive at the same gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import prod
from typing import Any

from torch import nn

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.arithmetic.sampler import distribute
from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.comparing.gradients import Gradients, Part, on_data_parallel, on_one_device, on_ranks
from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.config.ranks import TIMEOUT_SECONDS, as_wait
from dpdemo.config.weights import is_weighted
from dpdemo.errors import UsageError
from dpdemo.models.failure import memory_told
from dpdemo.models.modules import DTYPES, build
from dpdemo.reports.comparison import Comparison, GradientCheck, Side
from dpdemo.reports.devices import Devices
from dpdemo.reports.speedup import Workload
from dpdemo.reports.split import Shapes, SplitReport
from dpdemo.running.dp import place
from dpdemo.splitting.predict import predict
from dpdemo.timing.links import LINKS
from dpdemo.timing.predict import predict_speedup
from dpdemo.timing.workload import builtin_workload

TOLERANCE = 1e-4
"""Relative: float32 sums in another order differ by less, and any two weightings by far more. Types with
fewer digits have more round-off, and a tolerance of their own."""
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
    """A way to compute gradients: the parts it takes the samples in, and which samples weigh more."""

    name: str
    parts: Sequence[Part]
    heavier: str
    found: Gradients


def compare(config: Config, timeout: float = TIMEOUT_SECONDS) -> Comparison:
    """Compare both strategies over as many GPUs; the gradients are computed on the CPU.

    Raises:
        UsageError: for a config of several nodes, which DataParallel cannot have, or a timeout out of range.
        RunError: if the model fails.

    """
    if is_weighted(config):
        key = "weights" if config.chunks is None else "chunks"
        raise UsageError(
            f"expected the chunks of torch, which both strategies have, got `{key}` - at key `{key}`",
            hint=f"leave `{key}` out; `dpdemo simulate --strategy ddp --{key} ...` shows unequal ranks",
        )
    if config.nodes > 1:
        raise UsageError(
            f"expected one node, on which both strategies can run, got {config.nodes} - at key `nodes`"
        )
    longest_wait = as_wait(timeout)
    with memory_told("compare them here"):
        return _compared(config, longest_wait)


def _compared(config: Config, longest_wait: timedelta) -> Comparison:
    dp, ddp = both(config)
    first = min(config.batch_size, config.data_size)
    sizes = _measure(dp.config)
    of_dp, of_ddp = _sides(dp, ddp, sizes)
    return Comparison(
        config=config,
        dp=of_dp,
        ddp=of_ddp,
        has_batchnorm=sizes.has_batchnorm,
        samples=first,
        gradients=tuple(_check_gradients(dp.config, first, len(dp.devices), sizes, longest_wait)),
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


def _sides(dp: SplitReport, ddp: SplitReport, sizes: _Sizes) -> tuple[Side, Side]:
    """Put both predictions in numbers that can be set side by side."""
    distribution = ddp.distribution
    assert distribution is not None  # noqa: S101 - a prediction of ddp
    ranks, samples = distribution.world_size, dp.totals.samples
    even_dp, even_ddp = _break_evens(dp, sizes)
    one_process = Side(
        processes=1,
        rows_per_device=_rows(dp),
        samples_per_step=dp.config.batch_size,
        steps_per_epoch=dp.totals.batches,
        samples_drawn=samples,
        num_repeated=0,
        num_dropped=dp.config.data_size - samples,
        sample_weight=dp.sample_weight,
        trace=dp.trace,
        **_bytes_of_dp(dp, sizes),
        **even_dp,
    )
    processes = Side(
        processes=ranks,
        rows_per_device=_rows(ddp),
        samples_per_step=distribution.global_batch_size,
        steps_per_epoch=ddp.totals.batches,
        samples_drawn=distribution.drawn,
        num_repeated=distribution.num_repeated,
        num_dropped=distribution.num_dropped,
        sample_weight=ddp.sample_weight,
        trace=ddp.trace,
        scatter_bytes=0,
        broadcast_bytes=(ranks - 1) * sizes.buffers,
        gather_bytes=0,
        # a ring sends each number 2 (n - 1) times over all links together
        gradient_bytes=2 * (ranks - 1) * sizes.parameters,
        **even_ddp,
    )
    return one_process, processes


def _rows(report: SplitReport) -> tuple[int, ...]:
    group = report.batches[0]
    return (*(one.rows for one in group.replicas()), *(0 for _ in group.idle))


def _bytes_of_dp(report: SplitReport, sizes: _Sizes) -> dict[str, int]:
    """Count what leaves the first device in a step and what comes back to it."""
    group = report.batches[0]
    away, first = group.num_replicas - 1, group.in_model[0]
    given = sum(len(run) * _volume(run.input, sizes) for run in group.in_model)
    returned = sum(len(run) * _volume(run.output, sizes) for run in group.in_model)
    return {
        "scatter_bytes": given - _volume(first.input, sizes),
        "broadcast_bytes": away * (sizes.parameters + sizes.buffers),
        "gather_bytes": returned - _volume(first.output, sizes),
        "gradient_bytes": away * sizes.parameters,
    }


def _break_evens(report: SplitReport, sizes: _Sizes) -> list[dict[str, Any]]:
    """Predict from which step of one GPU on as many GPUs pay under each strategy, over PCIe 4.0."""
    config, first = report.config, report.batches[0].in_model[0]
    output = _volume(first.output, sizes)
    work = Workload(
        name=config.model,
        rows=first.rows,
        num_parameters=sizes.parameters // sizes.element,
        parameter_bytes=sizes.parameters,
        gradient_bytes=sizes.parameters,
        buffer_bytes=sizes.buffers,
        input_bytes=_volume(first.input, sizes),
        output_bytes=output,
        output_gradient_bytes=output,
        launches=builtin_workload(config).launches if config.is_builtin else None,
    )
    ways = predict_speedup(work, LINKS["pcie4"], [len(report.devices)]).ways
    ends = [way.weak.break_even_ms for way in ways]
    return [{"break_even_ms_low": at.low, "break_even_ms_high": at.high} if at else {} for at in ends]


def _volume(shapes: Shapes, sizes: _Sizes) -> int:
    return sum(prod(shape) for _, shape in shapes) * sizes.element


def _check_gradients(
    config: Config, rows: int, num_gpus: int, sizes: _Sizes, longest_wait: timedelta
) -> list[GradientCheck]:
    """Compute the gradients of the first `rows` samples in every way, and explain what differs."""
    samples = range(rows)
    single = on_one_device(config, [(samples, 1 / rows)])
    return [
        GradientCheck(
            way.name,
            _difference(way.found, single),
            max(_weights(way.parts)),
            _why(config, single, way, sizes),
        )
        for way in (*_dp_ways(config, samples, num_gpus), *_ddp_ways(config, samples, num_gpus, longest_wait))
    ]


def _dp_ways(config: Config, samples: range, num_gpus: int) -> Iterator[_Way]:
    chunks, rows = _chunks(len(samples), num_gpus), len(samples)
    yield _Way(
        "DataParallel, loss of the gathered outputs",
        [(chunk, 1 / rows) for chunk in chunks],
        "",
        on_data_parallel(config, samples, num_gpus, loss_inside=False),
    )
    if config.wrapped:
        return  # a replica there sees neither the model's output nor a loss
    yield _Way(
        "DataParallel, loss inside each replica",
        [(chunk, 1 / (len(chunks) * len(chunk))) for chunk in chunks],
        f"samples of the short chunk of {len(chunks[-1])}",
        on_data_parallel(config, samples, num_gpus, loss_inside=True),
    )


def _ddp_ways(config: Config, samples: range, num_gpus: int, longest_wait: timedelta) -> Iterator[_Way]:
    epoch = distribute(len(samples), num_gpus, len(samples))
    parts: list[Part] = [(list(epoch.positions(rank)), 1 / epoch.drawn) for rank in range(num_gpus)]
    repeats = (
        f"{epoch.num_repeated} of the {len(samples)} samples, drawn twice in this step to fill the ranks,"
    )
    found = on_ranks(_one_step(config, len(samples), num_gpus), num_gpus, longest_wait)
    yield _Way("DDP, mean loss of each rank", parts, repeats, found["mean"])
    # a sum over all draws, which DDP divides by the ranks: made comparable with a mean
    name = f"DDP, summed loss, × {num_gpus} ranks ÷ {epoch.drawn} draws"
    scaled = {key: gradient * (num_gpus / epoch.drawn) for key, gradient in found["sum"].items()}
    yield _Way(name, parts, repeats, scaled)


def _chunks(rows: int, num_gpus: int) -> list[range]:
    sizes = split_batch(rows, num_gpus).sizes()
    return [range(sum(sizes[:number]), sum(sizes[: number + 1])) for number in range(len(sizes))]


def _one_step(config: Config, rows: int, num_ranks: int) -> Config:
    """Make the config whose whole epoch is one batch per rank."""
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
    """Find which way of going through the samples on one device gives the same gradients."""
    apart, tolerance = _difference(way.found, single), max(TOLERANCE, tolerance_of(config.dtype).relative)
    if apart < TOLERANCE:
        return "the same as on one device"
    weights = _weights(way.parts)
    heaviest = max(weights)
    heavier = f"{way.heavier} count {heaviest:.2f} times their fair share" if heaviest > 1 + TOLERANCE else ""
    if apart < tolerance and not (heavier or sizes.has_batchnorm):
        return f"the same as on one device, to the round-off of {config.dtype}"
    together: list[Part] = [([sample], weight / len(weights)) for sample, weight in enumerate(weights)]
    parts = way.parts if sizes.has_batchnorm else together
    if _difference(way.found, on_one_device(config, parts)) > tolerance:
        return "not explained by the weights of the samples"
    alone = "BatchNorm sees each part of the batch alone" if sizes.has_batchnorm else ""
    return "; ".join(filter(None, (alone, heavier)))


def _weights(parts: Sequence[Part]) -> list[float]:
    """Add up how many times its fair share each sample counts, over all the times that it is drawn."""
    num_samples = 1 + max(max(samples) for samples, _ in parts)
    weights = [0.0] * num_samples
    for samples, weight in parts:
        for sample in samples:
            weights[sample] += weight * num_samples
    return weights
