"""`dpdemo speedup`: whether more GPUs pay, before anyone rents them."""

from typing import Annotated

import typer

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.cli import options as o
from dpdemo.cli.edge import print_report
from dpdemo.cli.settings import batch_of_inputs, exclusive, inputs_of, read_settings, without_effect
from dpdemo.cli.startup import loading_torch, users_code
from dpdemo.config.fields import INT64_MAX, Config
from dpdemo.config.numbers import scaled_number
from dpdemo.errors import UsageError, about
from dpdemo.results.speedupdata import Workload
from dpdemo.sizes import parse_size
from dpdemo.timing.anchors import check_anchors, read_anchor
from dpdemo.timing.links import chosen_link
from dpdemo.timing.predict import predict_speedup
from dpdemo.timing.workload import given_workload

EXAMPLES = (
    "speedup model.py:Net --link pcie4",
    "speedup model.py:Net --link nvlink3 --one-gpu-step 49ms",
    "speedup --parameters 124M --outputs 98MB --link nvlink3",
)
DEFAULT_GPUS = (2, 4, 8)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}
_GPUS = "Numbers of GPUs to compare with one. (default: 2,4,8)"
Counts = Annotated[o.Text, o.option("--gpus -g N,N,...", o.GPUS, _GPUS)]
_BANDWIDTH = "Bandwidth one way, instead of --link: 20GB/s."
Bandwidth = Annotated[o.Text, o.option("--bandwidth RATE", o.GPUS, _BANDWIDTH)]
_PARAMETERS = "Number of parameters, instead of a model: 124M. Needs no torch."
Parameters = Annotated[o.Text, o.option("--parameters N", o.MODEL, _PARAMETERS)]
_OUTPUTS = "With --parameters: bytes of the outputs of one GPU, 98MB."
Outputs = Annotated[o.Text, o.option("--outputs BYTES", o.MODEL, _OUTPUTS)]
_INPUTS = "Function that returns the inputs for a batch size; with --parameters, their bytes."
Inputs = Annotated[o.Text, o.option("--inputs pkg.mod:function|BYTES", o.DATA, _INPUTS)]


def command(
    ctx: typer.Context,
    target: o.Target = "",
    gpus: Counts = None,
    link: o.Link = None,
    bandwidth: Bandwidth = None,
    one_gpu_step: o.Steps = None,
    batch_size: o.BatchSize = None,
    input: o.InputSpec = None,
    inputs: Inputs = None,
    model: o.Model = None,
    parameters: Parameters = None,
    outputs: Outputs = None,
    loss: o.Loss = None,
    config: o.ConfigFile = None,
    set_keys: o.SetKeys = None,
    form: o.PlainForm = "table",
    save: o.Save = None,
    quiet: o.Quiet = False,
) -> None:
    """Predict whether more GPUs pay: bytes and launches of a step, break-even, speed-up.

    --gpus 2,4,8 lists numbers of GPUs; --batch-size is the batch of one. Bytes and operators are counted on
    virtual GPUs; milliseconds of computation come from --one-gpu-step alone.
    """
    settings = read_settings(ctx)
    found = chosen_link(link, bandwidth)
    anchors = tuple(read_anchor(text) for text in one_gpu_step or ())
    numbers = _numbers(settings)
    if parameters is not None:
        exclusive(ctx, "parameters", "input", "target", "model", "loss")
        workload = _sized(settings, parameters, outputs, inputs)
    else:
        hint = "sizes replace a model; a model's own outputs are measured"
        without_effect(ctx, ("outputs",), "`--parameters` beside it", "none", hint)
        given = inputs_of(ctx)
        checked = batch_of_inputs(settings, input)
        with loading_torch(hides_gpus=True):
            from dpdemo.timing.observe import observe_workload

        with users_code(quiet=quiet, doing="predicting") as say:
            workload = observe_workload(checked, given, loss=loss or "auto", progress=say)
    check_anchors(anchors, workload)
    print_report(predict_speedup(workload, found, numbers, anchors), form, save, quiet=quiet)


def _numbers(config: Config) -> tuple[int, ...]:
    """Read `--gpus 2,4,8`: here a list has numbers of GPUs, not ordinals."""
    gpus = config.gpus
    if gpus is None:
        return DEFAULT_GPUS
    if isinstance(gpus, str):
        raise UsageError("expected numbers of GPUs such as 2,4,8, got `all`", key="gpus")
    numbers = (gpus,) if isinstance(gpus, int) else gpus
    if 0 in numbers:
        raise UsageError(
            f"expected numbers of GPUs from 1 to {MAX_GPUS}, got 0",
            key="gpus",
            hint="--gpus 2,4,8 compares two, four and eight GPUs with one",
        )
    return tuple(dict.fromkeys(numbers))


def _sized(config: Config, parameters: str, outputs: str | None, inputs: str | None) -> Workload:
    count = scaled_number(parameters.upper(), _UNITS, 0, INT64_MAX)
    if count is None:
        raise UsageError(f"expected a number such as 124M, got {parameters[:60]!r}", key="parameters")
    return given_workload(
        round(count),
        dtype=config.dtype,
        output_bytes=_bytes(outputs, "outputs"),
        input_bytes=_bytes(inputs, "inputs"),
        rows=config.batch_size if "batch_size" in config.given else None,
    )


def _bytes(text: str | None, key: str) -> int:
    with about(key):
        return 0 if text is None else parse_size(text, bare="B")
