"""`dpdemo memory`: what each GPU must hold, before anyone pays for it."""

from typing import Annotated, Any

import typer

from dpdemo.cli import options as o
from dpdemo.cli.edge import print_hint, print_report
from dpdemo.cli.settings import (
    batch_of_inputs,
    exclusive,
    inputs_of,
    read_gpu_memory,
    read_settings,
    without_effect,
)
from dpdemo.cli.startup import loading_torch, users_code
from dpdemo.config.ranks import num_gpus
from dpdemo.errors import CheckFailedError
from dpdemo.results.memorydata import Optimizer, Training, ZeroGrad

EXAMPLES = (
    "memory model.py:Net --gpus 4 --input 64x512",
    "memory transformers:gpt2-xl --gpus 4 --gpu A100-80GB",
    "memory model.py:Net --gpus 4 --gpu-memory 24GiB --fit",
)
_RESERVE = "Memory to keep free beside PyTorch's, for the CUDA context. (default: 600MiB)"
Reserve = Annotated[o.Text, o.option("--reserve SIZE", o.GPUS, _RESERVE)]
Fit = Annotated[bool, o.option("--fit", o.GPUS, "Find the largest batch that fits on all GPUs.")]
_SEQ_LEN = "Tokens of a text, for transformers:... (default: 512, or what the model takes)"
SeqLen = Annotated[int | None, o.option("--seq-len TOKENS", o.DATA, _SEQ_LEN, **o.SIZE)]
_IMAGE = "Pixels of an image's sides, for a library's model. (default: the model's)"
ImageSize = Annotated[int | None, o.option("--image-size PIXELS", o.DATA, _IMAGE, **o.SIZE)]
_OPTIMIZER = "The optimizer of the step. (default: adamw)"
ChosenOptimizer = Annotated[Optimizer | None, o.option("--optimizer", o.MODEL, _OPTIMIZER)]
_ZERO_GRAD = """When gradients are freed: before the forward pass, after it, or set to zero and kept. \
(default: before)"""
ChosenZeroGrad = Annotated[ZeroGrad | None, o.option("--zero-grad", o.MODEL, _ZERO_GRAD)]
Amp = Annotated[bool, o.option("--amp", o.MODEL, "Forward and loss under torch.autocast.")]
Inference = Annotated[bool, o.option("--inference", o.MODEL, "No gradients, no optimizer.")]
_NUMBERS = "Compute real numbers, for models that look at them; takes the model's memory on this machine."
Numbers = Annotated[bool, o.option("--numbers", o.MODEL, _NUMBERS)]


def command(
    ctx: typer.Context,
    target: o.Target = "",
    gpus: o.Gpus = None,
    gpu: o.Card = None,
    gpu_memory: o.GpuMemory = None,
    reserve: Reserve = None,
    fit: Fit = False,
    batch_size: o.BatchSize = None,
    input: o.InputSpec = None,
    inputs: o.InputsFrom = None,
    seq_len: SeqLen = None,
    image_size: ImageSize = None,
    model: o.Model = None,
    optimizer: ChosenOptimizer = None,
    loss: o.Loss = None,
    zero_grad: ChosenZeroGrad = None,
    amp: Amp = False,
    inference: Inference = False,
    numbers: Numbers = False,
    config: o.ConfigFile = None,
    set_keys: o.SetKeys = None,
    form: o.PlainForm = "table",
    save: o.Save = None,
    quiet: o.Quiet = False,
) -> None:
    """Predict the memory of each GPU in a training step, and the largest batch that fits.

    Nothing is allocated, and no GPU is needed: a genuine step runs on virtual GPUs whose tensors have sizes
    and no numbers. Exits with 1 if a GPU lacks memory; with --fit, if not even one sample fits.
    """
    exclusive(ctx, "inference", "optimizer", "loss", "zero_grad")
    settings = read_settings(ctx)
    sizes = read_gpu_memory(gpu_memory, num_gpus(settings))
    if settings.is_builtin:
        hint = "a built-in model has inputs of its own"
        needs = "the model of a library for it"
        without_effect(ctx, ("seq_len", "image_size"), needs, f"`{settings.model}`", hint)
    asked: dict[str, Any] = {"optimizer": optimizer, "loss": loss, "zero_grad": zero_grad}
    chosen = {key: value for key, value in asked.items() if value is not None}
    training = Training(**chosen, amp=amp, inference=inference)
    given = inputs_of(ctx)
    checked = batch_of_inputs(settings, input)
    with loading_torch(hides_gpus=True):
        from dpdemo.memory import largest_batch, predict_memory
        from dpdemo.models.libraries import InputSizes

    with users_code(quiet=quiet, doing="predicting") as say:
        report = (largest_batch if fit else predict_memory)(
            checked,
            training=training,
            gpu_memory=sizes,
            gpu=gpu,
            reserve=reserve,
            inputs=given,
            input_sizes=InputSizes(seq_len, image_size),
            progress=say,
            numbers=numbers,
        )
    print_report(report, form, save, quiet=quiet)
    if report.fits:
        return
    hint = "" if fit else "--fit finds the largest batch that fits"
    if form in {"json", "csv"}:  # which have no words
        from dpdemo.results.memory import verdict

        raise CheckFailedError(verdict(report).rstrip("."), hint=hint)
    if hint and not quiet:
        print_hint(hint)
    raise typer.Exit(1)
