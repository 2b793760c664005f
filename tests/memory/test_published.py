"""Predictions compared with what others measured on real GPUs (V100): `dpdemo/memory/published.csv`.

The figures are `torch.cuda.max_memory_allocated` in units of 1000 MiB, to a tenth, of one of four GPUs
under DistributedDataParallel (docs/model_zoo.md of mmsegmentation): so the buckets of the gradients, as
large as the parameters, are added to what one GPU is predicted to hold. PyTorch took no workspace for
cuBLAS then, and `segmentation.py` says what else was different.
"""

import pytest
import torch
from segmentation import make

from dpdemo.memory.published import UNIT, published, rows
from dpdemo.virtual import virtual_gpus

ROWS = rows()
VOLTA = 7


def predicted(row):
    """Return the peak of the second training step of a row's network, in bytes."""
    with virtual_gpus(1, storage="meta") as gpus:
        gpus.count_scratch(VOLTA)
        model = make(row).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        images, *size = (int(row[name]) for name in ("images", "height", "width"))
        image = torch.empty(images, 3, *size, device="cuda")
        label = torch.zeros(images, *size, dtype=torch.int64, device="cuda")
        for _ in range(2):
            optimizer.zero_grad()
            gpus.reset_peaks()
            torch.autograd.backward(model(image, label)["loss"])
            optimizer.step()
        return gpus.peak_bytes(0) + sum(parameter.nbytes for parameter in model.parameters())


def main():
    """Print each row: the last column is `predicted_mib`."""
    for row in ROWS:
        whole, measured = predicted(row), float(row["gib_thousandths"]) * UNIT
        where = f"{row['head']} R-{row['depth']} {row['height']}x{row['width']} x{row['images']}"
        sizes = f"{whole / 1e9:>8.2f}{measured / 1e9:>8.2f} GB{whole / measured:>8.3f}{whole / 2**20:>9.0f}"
        print(f"{where:<34}{sizes}")  # noqa: T201 - that is what it is for


FAST = [row for row in ROWS if (row["depth"], row["width"]) == ("18", "1024")]


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.slow) for row in ROWS if row["depth"] == "50"] + FAST[:1],
    ids=lambda row: f"{row['head']}-{row['depth']}-{row['width']}-{row['classes']}",
)
def test_a_prediction_is_the_one_that_the_errors_are_computed_from(row):
    assert predicted(row) / 2**20 == pytest.approx(float(row["predicted_mib"]), abs=1)


def test_errors_are_below_one_per_cent_in_the_median_and_three_at_worst():
    found = published()
    assert found.num_cases == len(ROWS) == 20
    assert 0 < found.median < 0.01 < found.worst < 0.03
    assert f"{found.num_cases} published cases" in found.note


if __name__ == "__main__":
    main()
