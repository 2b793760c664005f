"""Predictions compared with what others measured on real GPUs: `dpdemo/memory/published.csv`.

Allocated is `torch.cuda.max_memory_allocated`, reserved `torch.cuda.max_memory_reserved`, of one GPU. The
networks for images and videos were trained on V100s with a PyTorch (1.4 to 1.8) that took no workspace for
cuBLAS, and whose `zero_grad` kept gradients; `segmentation.py` tells what else was different.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from dpdemo.memory import predict_memory
from dpdemo.memory.published import published, rows
from dpdemo.results.memorydata import PARTS, Training
from dpdemo.results.wrapping import Wrapping

ROWS = rows()
WORKSPACES = PARTS.index("library workspaces")
OLD = {"gpu": "V100-32GB", "training": Training("momentum", zero_grad="to-zero")}


def twenty_layers():
    """Return the model of a recipe."""
    return nn.Sequential(*(nn.Linear(2000, 2000) for _ in range(20)))


def segmentation(name):
    """Return the settings of a network for images."""
    *_, height, width = map(int, name.split("_")[1:])

    def inputs(images):
        return torch.empty(images, 3, height, width), torch.zeros(images, height, width, dtype=torch.int64)

    return {**OLD, "model": f"segmentation:{name}", "inputs": inputs}


def video(name):
    """Return the settings of a network for videos."""
    kind, frames = name.split("_")
    side = 112 if kind == "c3d" else 224
    training = Training("momentum", zero_grad="to-zero", loss="cross-entropy")
    inputs = [f"1x3x{frames}x{side}x{side}"]
    return {**OLD, "model": f"video:{kind}", "inputs": inputs, "training": training}


def linear(_):
    """Return the settings of a recipe's model, before it updates its parameters."""
    training = Training("none", loss="mse")
    return {
        "model": "test_published:twenty_layers",
        "inputs": ["20x2000"],
        "training": training,
        "gpu": "V100-32GB",
    }


def decoder(_):
    """Return the settings of torchtitan's decoder."""
    return {
        "model": "decoder:Decoder",
        "inputs": ["2x8192:int64<9"],
        "training": Training(loss="decoder:loss", frees_output=True),
        "wrapping": Wrapping(
            mixed="bf16", reduce_dtype="fp32", keep_unsharded="last", checkpoint="decoder:contexts"
        ),
        "gpu": "H100-80GB",
    }


def predicted(row):
    """Return the bytes that are predicted for a row."""
    kind, _, name = row["network"].partition(":")
    settings = {"segmentation": segmentation, "video": video, "linear": linear, "decoder": decoder}[kind](
        name
    )
    size = {"gpus": int(row["gpus"]), "batch_size": int(row["rows"]), "strategy": row["strategy"]}
    gpu = predict_memory(**settings, **size).gpus[0]
    if row["figure"] == "reserved":
        return gpu.reserved_bytes
    return gpu.peak_bytes - gpu.parts[WORKSPACES]


def main():
    """Print each row: the last column is `predicted_mib`."""
    sys.path.insert(0, str(Path(__file__).parent))
    for row in ROWS:
        whole, measured = predicted(row), float(row["published"]) * int(row["unit_bytes"])
        where = f"{row['strategy']} x {row['gpus']} {row['network']} x {row['rows']}"
        sizes = f"{whole / 2**20:>8.0f}{measured / 2**20:>8.0f} MiB{whole / measured:>8.4f}"
        print(f"{where:<50}{row['figure']:<10}{sizes}{whole / 2**20:>9.0f}", flush=True)  # noqa: T201


FAST = ("linear:20_2000", "segmentation:fcn_18_19_512_1024")
SLOW = ("segmentation:deeplabv3_50_150_512_512", "video:tsn_3", "video:i3d_32", "video:c3d_16")


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_prediction_is_the_one_that_the_errors_are_computed_from(name, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (row,) = (row for row in ROWS if row["network"] == name)
    assert predicted(row) / 2**20 == pytest.approx(float(row["predicted_mib"]), abs=1)


@pytest.mark.parametrize(
    ("strategy", "count", "median", "worst"), [("ddp", 27, 0.005, 0.017), ("fsdp2", 2, 0.006, 0.01)]
)
def test_errors_are_small_and_each_strategy_has_its_own(strategy, count, median, worst):
    found = published(strategy)
    assert found.num_cases == count == sum(row["strategy"] == strategy for row in ROWS)
    assert 0 < found.median < median
    assert found.median < found.worst < worst
    assert f"{count} published cases" in found.note


if __name__ == "__main__":
    main()
