"""What `dpdemo speedup` was asked, checked before torch is loaded."""

import re
from dataclasses import dataclass

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.bytesize import parse_size
from dpdemo.cli.memoryoptions import batch_of_inputs
from dpdemo.cli.options import Settings
from dpdemo.config.fields import INT64_MAX, Config
from dpdemo.config.numbers import scaled_number
from dpdemo.config.targets import is_target
from dpdemo.errors import UsageError, about
from dpdemo.reports.speedup import Anchor, Link, Workload
from dpdemo.timing.anchors import read_anchor
from dpdemo.timing.links import chosen_link, missing_link
from dpdemo.timing.workload import builtin_workload, given_workload

DEFAULT_GPUS = (2, 4, 8)
_COUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGBT]?)\s*", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}


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
            "expected `--parameters` too, got it alone",
            key="outputs",
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
        raise UsageError("expected numbers of GPUs such as 2,4,8, got `all`", key="gpus")
    numbers = (gpus,) if isinstance(gpus, int) else tuple(map(int, gpus))
    if bad := [number for number in numbers if not 1 <= number <= MAX_GPUS]:
        raise UsageError(
            f"expected numbers of GPUs from 1 to {MAX_GPUS}, got {bad[0]}",
            key="gpus",
            hint="--gpus 2,4,8 compares two, four and eight GPUs with one",
        )
    return tuple(dict.fromkeys(numbers))


def _sized(settings: Settings, given: Given, parameters: str) -> Workload:
    if given.shapes:
        raise UsageError(
            "expected one of them, got both",
            key="parameters input",
            hint="with --parameters the inputs are bytes: --inputs 38MB",
        )
    is_said = "batch_size" in settings.config.model_fields_set
    return given_workload(
        read_count(parameters),
        dtype=settings.config.dtype,
        output_bytes=_bytes(given.outputs, "outputs"),
        input_bytes=_bytes(given.inputs, "inputs"),
        rows=settings.config.batch_size if is_said else None,
    )


def _inputs(given: Given) -> list[str] | str | None:
    if given.shapes and given.inputs is not None:
        raise UsageError("expected one of them, got both", key="input inputs")
    if given.inputs is not None and not is_target(given.inputs):
        raise UsageError(
            f"expected `pkg.mod:function`, got {given.inputs[:60]!r}",
            key="inputs",
            hint="bytes, as in --inputs 38MB, go with --parameters",
        )
    return given.inputs if given.inputs is not None else list(given.shapes) or None


def read_count(text: str) -> int:
    """Read `124M` or `1.5B`: a count in units of 1000.

    Raises:
        UsageError: for anything else.

    """
    read = _COUNT.fullmatch(text)
    count = scaled_number(read[1], _UNITS[read[2].upper()], 0, INT64_MAX) if read else None
    if count is None:
        raise UsageError(f"expected a number such as 124M, got {text[:60]!r}", key="parameters")
    return round(count)


def _bytes(text: str | None, key: str) -> int:
    if text is None:
        return 0
    with about(key):
        return parse_size(text, bare="B")
