"""Memory reports that several tests draw, made by hand."""

from dataclasses import replace
from typing import Any

from dpdemo.config.load import make_config
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import PARTS, Fit, GpuMemory, Remedy, Training
from dpdemo.results.strategies import StrategiesReport
from dpdemo.results.wrapping import Wrapping

MIB, GIB = 2**20, 2**30
WORKSPACES = 64 * MIB


def gpu(device: int, phase: str, capacity: int | None = 24 * GIB, **parts: int) -> GpuMemory:
    """Make a GPU from the parts that it holds; `replica_copies` is "replica copies"."""
    held = {name.replace("_", " "): num_bytes for name, num_bytes in parts.items()}
    assert set(held) <= set(PARTS)
    return GpuMemory(f"cuda:{device}", tuple(held.get(part, 0) for part in PARTS), phase, capacity)


def first(capacity: int | None = 24 * GIB, **parts: int) -> GpuMemory:
    """Make a GPU 0 that gathers the outputs and computes the loss of them."""
    trained = {"parameters": 474 * MIB, "gradients": 474 * MIB, "optimizer_state": 948 * MIB}
    data = {"inputs": MIB, "activations": 12 * GIB, "gathered_outputs": 6 * GIB, "temporaries": 5 * GIB}
    return gpu(0, "loss", capacity, **(trained | data | {"library_workspaces": WORKSPACES} | parts))


def other(device: int, capacity: int | None = 24 * GIB, **parts: int) -> GpuMemory:
    """Make one of the GPUs that only run a replica."""
    data = {"inputs": MIB // 4, "activations": 12 * GIB, "replica_copies": 474 * MIB, "temporaries": GIB}
    return gpu(device, "backward", capacity, **(data | {"library_workspaces": WORKSPACES} | parts))


def report(*gpus: GpuMemory, batch_size: int = 256, **changes: Any) -> MemoryReport:
    """Make a report, of four GPUs of which the first is overfull if none are given."""
    gpus = gpus or (first(), *(other(device) for device in range(1, 4)))
    chunk = -(-batch_size // len(gpus))
    rows = [max(0, min(chunk, batch_size - chunk * position)) for position in range(len(gpus))]
    config = changes.pop("config", {})
    made = {
        "config": make_config({"model": "own.models:decoder", "gpus": len(gpus), **config}),
        "training": Training(loss="cross-entropy"),
        "batch_size": batch_size,
        "num_parameters": 124_439_808,
        "inputs": (("0", (batch_size, 512)),),
        "gpus": tuple(replace(gpu, rows=number) for gpu, number in zip(gpus, rows, strict=True)),
        **changes,
    }
    return MemoryReport(**made)


def fitted(**changes: Any) -> MemoryReport:
    """Make the report of a search for the largest batch."""
    found = {
        "largest": 244, "binding": "cuda:0", "phase": "loss", "missing_bytes": 40 * MIB,
        "num_predictions": 11, "remedies": REMEDIES, **changes,
    }  # fmt: skip
    held = {"activations": 11 * GIB} if found["largest"] else {"temporaries": 8 * GIB}
    gpus = (first(**held), *(other(device, activations=11 * GIB) for device in range(1, 4)))
    return report(*gpus, batch_size=found["largest"] or 1, config={"batch_size": 256}, fit=Fit(**found))


def compared(capacity: int | None = 24 * GIB, **changes: Any) -> StrategiesReport:
    """Make the reports of three strategies over two GPUs."""
    ranks = {"batch_size_is": "global"}
    reports = (
        report(first(capacity), other(1, capacity), **changes),
        report(
            *(other(device, capacity, gradient_buckets=474 * MIB) for device in range(2)),
            config={"strategy": "ddp", **ranks},
            **changes,
        ),
        report(
            *(other(device, capacity, gathered_blocks=80 * MIB) for device in range(2)),
            config={"strategy": "fsdp2", **ranks},
            wrapping=Wrapping(mixed="bf16", checkpoint="full"),
            notes=("A note.",),
            **changes,
        ),
    )
    return StrategiesReport(reports)


REMEDIES = (
    Remedy("inference mode", "torch.inference_mode() around the call", 15 * GIB, "cuda:0", 9 * GIB),
    Remedy("loss inside the model", "return the loss from forward", 11 * GIB, "cuda:0", 14 * GIB),
    Remedy("another output_device", "DataParallel(model, output_device=3)", 12 * GIB, "cuda:3", 20 * GIB),
    Remedy(
        "gradient accumulation", "two backward passes of 128 rows before each step", MIB, "cuda:0", 24 * GIB
    ),
)
