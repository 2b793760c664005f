"""`dpdemo explain`: one batch through DataParallel's four steps."""

import typer

from dpdemo.cli import options as o
from dpdemo.cli.edge import print_hint, print_report
from dpdemo.cli.settings import read_settings
from dpdemo.cli.startup import loading_torch

EXAMPLES = (
    "explain --virtual --gpus 3",
    "explain --virtual --gpus 4 --model model.py:Net",
    "explain --virtual --gpus 3 --save steps.svg",
)


def command(
    ctx: typer.Context,
    gpus_argument: o.GpusArgument = None,
    gpus: o.Gpus = None,
    virtual: o.Virtual = False,
    batch_size: o.BatchSize = None,
    data_size: o.DataSize = None,
    drop_last: o.DropLast = None,
    model: o.Model = None,
    config: o.ConfigFile = None,
    set_keys: o.SetKeys = None,
    form: o.TextForm = "text",
    save: o.SaveText = None,
    quiet: o.Quiet = False,
) -> None:
    """Take one batch through scatter, replicate, parallel_apply and gather, step by step.

    Shows shapes, devices and bytes copied, all of them observed in one call of DataParallel.
    """
    checked = read_settings(ctx)
    with loading_torch(hides_gpus=virtual):
        from dpdemo.explaining import walkthrough

    found = walkthrough.explain(checked, virtual=virtual)
    print_report(found, form, save, quiet=quiet)
    if found.devices.kind == "cpu" and not quiet:
        print_hint("no GPU is visible; `dpdemo explain --virtual --gpus 0,1,2` takes the four steps anyway")
