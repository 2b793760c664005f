"""`dpdemo memory`: what each GPU must hold, before anyone pays for it."""

from dataclasses import fields
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
from dpdemo.results.wrapping import Half, Kept, Reduced, Wrapping

EXAMPLES = (
    "memory model.py:Net --gpus 4 --input 64x512",
    "memory transformers:gpt2-xl --gpus 4 --gpu A100-80GB --strategy dp,ddp,fsdp2",
    "memory model.py:Net --gpus 4 --gpu-memory 24GiB --fit",
)
RANKS = "Strategies"
WRAPPING = {field.name for field in fields(Wrapping)}
_RESERVE = "Memory to keep free beside PyTorch's, for the CUDA context. (default: 600MiB)"
Reserve = Annotated[o.Text, o.option("--reserve SIZE", o.GPUS, _RESERVE)]
_STRATEGY = """DataParallel (dp), or a process for each GPU: DistributedDataParallel (ddp), fully_shard \
(fsdp2); several, with commas, are compared. (default: dp)"""
Strategies = Annotated[o.Text, o.option("--strategy dp|ddp|fsdp2", o.GPUS, _STRATEGY)]
_BLOCKS = (
    "Classes of the blocks that are sharded or checkpointed. (default: the layer that the model repeats)"
)
Blocks = Annotated[o.Text, o.option("--blocks CLASS,...", RANKS, _BLOCKS)]
_KEEP = (
    "What fully_shard keeps whole between forward and backward: root, last (block), or all. (default: root)"
)
KeepUnsharded = Annotated[Kept | None, o.option("--keep-unsharded", RANKS, _KEEP)]
_MIXED = "The dtype that fully_shard computes in: its MixedPrecisionPolicy."
Mixed = Annotated[Half | None, o.option("--mixed", RANKS, _MIXED)]
_REDUCE = "The dtype of fully_shard's reduction. (default: as the installed torch chooses)"
ReduceDtype = Annotated[Reduced | None, o.option("--reduce-dtype", RANKS, _REDUCE)]
Offload = Annotated[bool, o.option("--offload", RANKS, "fully_shard with CPUOffloadPolicy.")]
_CHECKPOINT = "Activation checkpointing of the blocks: full, every Nth, or pkg.mod:function, a context_fn."
Checkpoint = Annotated[o.Text, o.option("--checkpoint full|N|CONTEXTS", RANKS, _CHECKPOINT)]
Lora = Annotated[
    int | None, o.option("--lora RANK", RANKS, "Train LoRA adapters of this rank alone, by peft.")
]
_LORA_TARGETS = "The layers that get adapters. (default: as peft chooses)"
LoraTargets = Annotated[o.Text, o.option("--lora-targets NAME,...", RANKS, _LORA_TARGETS)]
_BUCKET = "Size of DistributedDataParallel's buckets, in MiB. (default: 25)"
BucketMb = Annotated[float | None, o.option("--bucket-mb MIB", RANKS, _BUCKET)]
_VIEW = "DistributedDataParallel with gradient_as_bucket_view=True."
BucketView = Annotated[bool, o.option("--bucket-view", RANKS, _VIEW)]
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
_FREES = "The loop drops the model's output before the backward pass. (default: it holds it)"
FreesOutput = Annotated[bool, o.option("--frees-output", o.MODEL, _FREES)]
Fused = Annotated[bool, o.option("--fused", o.MODEL, "The optimizer with fused=True.")]
Amp = Annotated[bool, o.option("--amp", o.MODEL, "Forward and loss under torch.autocast.")]
Inference = Annotated[bool, o.option("--inference", o.MODEL, "No gradients, no optimizer.")]
_NUMBERS = "Compute real numbers, for models that look at them; takes the model's memory on this machine."
Numbers = Annotated[bool, o.option("--numbers", o.MODEL, _NUMBERS)]


def names_of(text: str | None) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def read_wrapping(ctx: typer.Context) -> Wrapping:
    """Read the settings of the strategies from their options."""
    given = {name: value for name, value in ctx.params.items() if name in WRAPPING and value is not None}
    for name in ("blocks", "lora_targets"):
        if name in given:
            given[name] = names_of(given[name])
    return Wrapping(**given)


def command(
    ctx: typer.Context,
    target: o.Target = "",
    gpus: o.Gpus = None,
    gpu: o.Card = None,
    gpu_memory: o.GpuMemory = None,
    reserve: Reserve = None,
    strategies: Strategies = None,
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
    frees_output: FreesOutput = False,
    fused: Fused = False,
    amp: Amp = False,
    inference: Inference = False,
    numbers: Numbers = False,
    blocks: Blocks = None,
    keep_unsharded: KeepUnsharded = None,
    mixed: Mixed = None,
    reduce_dtype: ReduceDtype = None,
    offload: Offload = False,
    checkpoint: Checkpoint = None,
    lora: Lora = None,
    lora_targets: LoraTargets = None,
    bucket_mb: BucketMb = None,
    bucket_view: BucketView = False,
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
    exclusive(ctx, "inference", "optimizer", "loss", "zero_grad", "frees_output", "fused")
    settings = read_settings(ctx, strategies=("dp", "ddp", "fsdp2"))
    ctx.obj.parameters = {*ctx.params, "strategy"}  # which is `strategies` here, since several may be named
    chosen_strategies = names_of(strategies) or (settings.strategy,)
    wrapping = read_wrapping(ctx)
    wrapping.expect_effect(chosen_strategies)
    sizes = read_gpu_memory(gpu_memory, num_gpus(settings))
    if settings.is_builtin:
        hint = "a built-in model has inputs of its own"
        needs = "the model of a library for it"
        without_effect(ctx, ("seq_len", "image_size"), needs, f"`{settings.model}`", hint)
    asked: dict[str, Any] = {"optimizer": optimizer, "loss": loss, "zero_grad": zero_grad}
    chosen = {key: value for key, value in asked.items() if value is not None}
    training = Training(**chosen, amp=amp, inference=inference, frees_output=frees_output, fused=fused)
    given = inputs_of(ctx)
    checked = batch_of_inputs(settings, input)
    with loading_torch(hides_gpus=True):
        from dpdemo.memory import compare_strategies
        from dpdemo.models.libraries import InputSizes

    with users_code(quiet=quiet, doing="predicting") as say:
        compared = compare_strategies(
            chosen_strategies,
            checked,
            fit=fit,
            wrapping=wrapping,
            training=training,
            gpu_memory=sizes,
            gpu=gpu,
            reserve=reserve,
            inputs=given,
            input_sizes=InputSizes(seq_len, image_size),
            progress=say,
            numbers=numbers,
        )
    report = compared if len(chosen_strategies) > 1 else compared.reports[0]
    print_report(report, form, save, quiet=quiet)
    if report.fits:
        return
    hint = "" if fit else "--fit finds the largest batch that fits"
    if form in {"json", "csv"}:  # which have no words
        raise CheckFailedError(report.verdict.rstrip("."), hint=hint)
    if hint and not quiet:
        print_hint(hint)
    raise typer.Exit(1)
