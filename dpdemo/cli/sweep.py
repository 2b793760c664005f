"""`dpdemo sweep`: the split over a grid of batch sizes and numbers of GPUs."""

from typing import Annotated

from dpdemo.cli import options as o
from dpdemo.cli.edge import print_report
from dpdemo.results.sweep import Measure
from dpdemo.sweeping.sweep import BATCH_SIZES, GPUS, NEAR, sweep

EXAMPLES = ("sweep", "sweep --gpus 2-8 --batch-size 16-512:x2", "sweep --of weight --near 64")
_AXIS = "8, 1-16, every fourth 4-32:4, doubled 1-64:x2, or a list of these."
GpusAxis = Annotated[str, o.option("--gpus -g AXIS", o.GPUS, f"Numbers of GPUs: {_AXIS}")]
SizesAxis = Annotated[str, o.option("--batch-size AXIS", o.DATA, "Batch sizes, in the same forms.")]
_NEAR = "Name the even batch sizes nearest to this one."
Near = Annotated[int, o.option("--near N", o.DATA, _NEAR, **o.SIZE)]
Of = Annotated[Measure, o.option("--of", o.OUTPUT, "The figure of each cell.")]


def command(
    gpus: GpusAxis = GPUS,
    batch_size: SizesAxis = BATCH_SIZES,
    near: Near = NEAR,
    of: Of = "balance",
    form: o.PlainForm = "table",
    save: o.Save = None,
    quiet: o.Quiet = False,
) -> None:
    """Map balance, loss weight or idle GPUs over batch sizes and numbers of GPUs.

    Pure arithmetic: each figure is that of a full batch, as dpdemo simulate reports it.
    """
    print_report(sweep(gpus, batch_size, of=of, near=near), form, save, quiet=quiet)
