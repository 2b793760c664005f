"""Hold virtual GPUs against a real GPU: one training step of each built-in model under DataParallel.

    python tests/gpus/steps_on_card.py           # on a machine with a GPU
    python tests/gpus/steps_on_card.py virtual   # anywhere: virtual GPUs beside themselves, in two processes

Three replicas share the card (`device_ids=[0, 0, 0]`); a process from which the card is hidden takes the same
steps on three virtual GPUs. Outputs, losses, gradients and buffers must be equal to round-off.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.config.catalogue import MODELS
from dpdemo.config.load import make_config
from dpdemo.epochs.dp import place
from dpdemo.epochs.epoch import make_dataset
from dpdemo.models.modules import build
from dpdemo.results.devices import Devices
from dpdemo.virtual import virtual_gpus

Step = dict[str, torch.Tensor]
ROWS = 8
"""Chunks of 3, 3 and 2 rows."""


def step(model: str, ordinals: list[int]) -> Step:
    """Take a model's step under genuine DataParallel, and return what it left, on the CPU."""
    config = make_config({"model": model, "batch_size": ROWS, "data_size": ROWS, "gpus": ordinals})
    built = build(config, place(config, Devices.of("cuda", ordinals)))
    batch = make_dataset(config).rows(torch.arange(ROWS))
    output = built.model(batch.to(built.input_device))
    loss = output.pow(2).mean()
    loss.backward()
    found = {"output": output, "loss": loss, **dict(built.model.named_buffers())}
    found |= {f"gradient of {name}": each.grad for name, each in built.model.named_parameters()}
    return {name: tensor.detach().cpu().clone() for name, tensor in found.items()}


def on_virtual_gpus() -> dict[str, Step]:
    """Return the steps of a process that sees no GPU."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps.pt"
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run([sys.executable, __file__, "write", path], env=hidden, check=True)
        return dict(torch.load(path))


def write(path: str) -> None:
    """Write the steps on three virtual GPUs to a file."""
    with virtual_gpus(3):
        torch.save({model: step(model, [0, 1, 2]) for model in MODELS}, path)


def differences(found: Step, expected: Step) -> list[str]:
    """Name the tensors that differ by more than round-off."""
    # replicas on the model's own GPU share a buffer that is alone of its type with it: each of them counts
    names = [name for name in expected if not name.endswith("num_batches_tracked")]
    wrong = set(found) ^ set(expected)
    for name in names:
        actual, other = found[name], expected[name]
        allowed = tolerance_of(str(other.dtype).removeprefix("torch.")).allowed(float(other.abs().max()))
        if actual.shape != other.shape or float((actual - other).abs().max()) > allowed:
            wrong.add(name)
    return sorted(wrong)


def main(where: str) -> int:
    """Compare the steps of all models, and return 1 if one differs."""
    if where == "card" and not torch.cuda.is_available():
        print(
            "expected a CUDA GPU, got none; `virtual` compares virtual GPUs with themselves", file=sys.stderr
        )
        return 2
    torch.backends.cudnn.allow_tf32 = False
    expected, is_wrong = on_virtual_gpus(), False
    for model in MODELS:
        if where == "virtual":
            with virtual_gpus(3):
                found = step(model, [0, 1, 2])
        else:
            found = step(model, [0, 0, 0])
        wrong = differences(found, expected[model])
        is_wrong |= bool(wrong)
        print(f"{model:<12} {len(found):>3} tensors  {', '.join(wrong) or 'equal to round-off'}")
    return int(is_wrong)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2])
    else:
        sys.exit(main(*sys.argv[1:] or ["card"]))
