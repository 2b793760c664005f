"""What `dpdemo speedup` was asked, checked before torch is loaded."""

import re
from dataclasses import dataclass

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.cli.memoryoptions import batch_of_inputs
from dpdemo.cli.options import Settings
from dpdemo.config.fields import INT64_MAX, Config
from dpdemo.config.numbers import scaled_number
from dpdemo.config.targets import is_target
from dpdemo.errors import UsageError
from dpdemo.reports.speedup import Anchor, Link, Workload
from dpdemo.timing.anchors import read_anchor
from dpdemo.timing.links import chosen_link, missing_link
from dpdemo.timing.workload import builtin_workload, given_workload
from dpdemo.wording import at

DEFAULT_GPUS = (2, 4, 8)
_AMOUNT = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[kKMGTB]?)(?P<binary>i?)(?P<byte>B?)\s*")
_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "B": 10**9}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Given:
    """The options of their own that sizes and measured steps have."""

    link: str | None
    bandwidth: str | None
    steps: tuple[str, ...]
    parameters: str | None
    outputs: str | None
    shapes: tuple[str, ...]
    inputs: str | None


@dataclass(frozen=True)
class Request:
    """What is to be predicted; `workload` is None where a step on virtual GPUs has to say."""

    config: Config
    gpus: tuple[int, ...]
    link: Link
    anchors: tuple[Anchor, ...]
    workload: Workload | None
    inputs: list[str] | str | None


def read_request(settings: Settings, given: Given) -> Request:
    """Check the options together.

    Raises:
        UsageError: naming the option, what was expected and what was got.

    """
    link = _link(given)
    anchors = tuple(read_anchor(text) for text in given.steps)
    gpus = _numbers(settings)
    if given.parameters is not None:
        workload = _sized(settings, given, given.parameters)
        return Request(settings.config, gpus, link, anchors, workload, None)
    if given.outputs is not None:
        raise UsageError(
            "expected `--parameters` too, got it alone - at option `--outputs`",
            hint="sizes stand for a model that is not there; one that is there is measured itself",
        )
    inputs = _inputs(given)
    config = batch_of_inputs(settings, list(given.shapes))
    is_known = config.is_builtin and inputs is None
    return Request(config, gpus, link, anchors, builtin_workload(config) if is_known else None, inputs)


def _link(given: Given) -> Link:
    link = chosen_link(given.link, given.bandwidth)
    if link is None:
        raise missing_link()
    return link


def _numbers(settings: Settings) -> tuple[int, ...]:
    """Read `--gpus 2,4,8`: here a list has numbers of GPUs, not ordinals."""
    gpus = settings.config.gpus
    if gpus is None:
        return DEFAULT_GPUS
    if gpus == "all":
        raise UsageError(f"expected numbers of GPUs such as 2,4,8, got `all` - {at('gpus', settings.where)}")
    numbers = (gpus,) if isinstance(gpus, int) else tuple(map(int, gpus))
    if bad := [number for number in numbers if not 1 <= number <= MAX_GPUS]:
        raise UsageError(
            f"expected numbers of GPUs from 1 to {MAX_GPUS}, got {bad[0]} - {at('gpus', settings.where)}",
            hint="--gpus 2,4,8 compares two, four and eight GPUs with one",
        )
    return tuple(dict.fromkeys(numbers))


def _sized(settings: Settings, given: Given, parameters: str) -> Workload:
    if given.shapes:
        raise UsageError(
            "expected one of them, got both - at options `--parameters` and `--input`",
            hint="with --parameters the inputs are bytes: --inputs 38MB",
        )
    is_said = "batch_size" in settings.config.model_fields_set
    return given_workload(
        read_amount(parameters, "--parameters"),
        dtype=settings.config.dtype,
        output_bytes=0 if given.outputs is None else read_amount(given.outputs, "--outputs"),
        input_bytes=0 if given.inputs is None else read_amount(given.inputs, "--inputs"),
        rows=settings.config.batch_size if is_said else None,
    )


def _inputs(given: Given) -> list[str] | str | None:
    if given.shapes and given.inputs is not None:
        raise UsageError("expected one of them, got both - at options `--input` and `--inputs`")
    if given.inputs is not None and not is_target(given.inputs):
        raise UsageError(
            f"expected `pkg.mod:function`, got {given.inputs[:60]!r} - at option `--inputs`",
            hint="bytes, as in --inputs 38MB, go with --parameters",
        )
    return given.inputs if given.inputs is not None else list(given.shapes) or None


def read_amount(text: str, option: str) -> int:
    """Read `124M`, `1.5B`, `98MB` or `98MiB`: numbers and bytes in units of 1000, with an i of 1024.

    Raises:
        UsageError: for anything else.

    """
    read = _AMOUNT.fullmatch(text)
    units = _BINARY if read and read["binary"] else _SIZES
    unit = read["unit"].upper() if read else "?"
    amount = scaled_number(read["number"], units[unit], 0, INT64_MAX) if read and unit in units else None
    if amount is None:
        what = "a number such as 124M" if option == "--parameters" else "bytes such as 98MB"
        raise UsageError(f"expected {what}, got {text[:60]!r} - at option `{option}`")
    return round(amount)
