"""`dpdemo speedup`: the costs of several GPUs, and from which step on they pay, before anyone rents them."""

from typing import Annotated

import typer

from dpdemo.cli import options as o
from dpdemo.cli.edge import print_report
from dpdemo.cli.settings import batch_of_inputs, exclusive, inputs_of, read_settings
from dpdemo.cli.startup import loading_torch, users_code
from dpdemo.config.ranks import num_gpus
from dpdemo.timing.links import DEFAULT_LINK, find_link, link_of_bandwidth

EXAMPLES = (
    "speedup model.py:Net --gpus 4 --link nvlink3",
    "speedup model.py:Net --gpus 4 --batch-size 256 --bandwidth 20GB/s",
    "speedup transformers:gpt2 --gpus 8",
)
_BANDWIDTH = "Bandwidth one way, instead of --link: 20GB/s."
Bandwidth = Annotated[o.Text, o.option("--bandwidth RATE", o.GPUS, _BANDWIDTH)]


def command(
    ctx: typer.Context,
    target: o.Target = "",
    gpus: o.Gpus = None,
    link: o.Link = DEFAULT_LINK,
    bandwidth: Bandwidth = None,
    batch_size: o.BatchSize = None,
    input: o.InputSpec = None,
    inputs: o.InputsFrom = None,
    model: o.Model = None,
    loss: o.Loss = None,
    config: o.ConfigFile = None,
    set_keys: o.SetKeys = None,
    form: o.PlainForm = "table",
    save: o.Save = None,
    quiet: o.Quiet = False,
) -> None:
    """Predict when more GPUs pay: bytes, launches, break-even of DataParallel and DDP.

    The GPUs share the batch, under DDP too. Bytes and operators are counted on virtual GPUs; no time of
    computation is predicted.
    """
    settings = read_settings(ctx)
    exclusive(ctx, "link", "bandwidth")
    found = find_link(link) if bandwidth is None else link_of_bandwidth(bandwidth)
    count, given = num_gpus(settings), inputs_of(ctx)
    checked = batch_of_inputs(settings, input)
    with loading_torch(hides_gpus=True):
        from dpdemo.timing.observe import observe_workload
        from dpdemo.timing.predict import predict_speedup

    with users_code(quiet=quiet, doing="predicting") as say:
        workload = observe_workload(checked, given, loss=loss or "auto", progress=say)
    print_report(predict_speedup(workload, found, count), form, save, quiet=quiet)
