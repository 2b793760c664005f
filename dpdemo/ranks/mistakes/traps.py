"""A call gives wrong numbers on several ranks, by its arguments.

Some functions of PyTorch take arguments for which they have no rule, and raise no error.

Seen in: losses, convolutions, `fill_` of sharded DTensors; meshes that are not in order; reductions by MAX;
uneven micro-batches; tied weights under tensor parallelism; windows of gradients that are given up;
pipelines that accumulate, or have BatchNorm; groups of ZeroRedundancyOptimizer; norms
that are converted; tensors that `to_empty` left without values

Instead: the form that the report names beside each
"""

from dpdemo.ranks.events import Trap
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_WORDS = {
    "sharded-loss": (
        "F.{0} of sharded DTensors: the mean is right, its gradient is {1} times too large",
        "write the mean out, as (a - b).square().mean() for mse_loss; or F.{0}(…, reduction='none').mean()",
    ),
    "sharded-convolution": (
        "A convolution of a DTensor whose height or width is sharded gives each rank a part of the output",
        "shard the batch or the channels, or redistribute the input to Replicate() first",
    ),
    "filled-sum": (
        "A value is filled into a DTensor whose sum is pending: it counts once for each of {1} ranks",
        "redistribute it to Replicate() first, or make a new tensor with torch.full_like",
    ),
    "reduced-by": (
        "The gradient of a differentiable all_reduce by {0} is not that of {0}: it comes to every rank",
        "gather with torch.distributed.nn.functional.all_gather, and reduce the stacked values with torch",
    ),
    "reduced-before-gathering": (
        "gather_for_metrics got one number for the last batch: it cannot cut off the samples that fill it up",
        "gather a value for each sample, and take the mean afterwards",
    ),
    "unsorted-mesh": (
        "A DeviceMesh of ranks {0}: collectives go by ascending ranks, shards by places: parts are swapped",
        "make it of ascending ranks along each dimension: init_device_mesh does",
    ),
    "empty-group": (
        "ZeroRedundancyOptimizer never trains {0} of its groups: a generator is empty when it is read again",
        'give each group a list: {{"params": list(model.base.parameters()), …}}',
    ),
    "rescaled-gradients": (
        "This step of a pipeline divides the gradients of the steps before it by {0}, too",
        "more micro-batches in one step; or scale_grads=False and a loss divided by their number",
    ),
    "statistics-of-shapes": (
        "The search for shapes between stages called this stage: BatchNorm has statistics of no real rows",
        "give PipelineStage input_args and output_args, with requires_grad as in training",
    ),
    "converted-norm": (
        "convert_sync_batchnorm puts a plain SyncBatchNorm in the place of {0}, whose own forward is lost",
        "convert with the function of {0}'s library, such as timm.layers.convert_sync_batchnorm",
    ),
    "no-values": (
        "to_empty left {0} without values, and a step trains with what was in memory",
        "give them values: reset_parameters() of every module that has some of its own, or a checkpoint",
    ),
    "kept-gradients": (
        "zero_grad() does not clear the gradients that fully_shard has not reduced: the next step has them",
        "end the window with a backward pass that averages, of 0 * output if need be, then call zero_grad()",
    ),
    "untied": (
        "parallelize_module made parameters of their own of {0}, which were one: they learn apart",
        "tie them again after it, before the optimizer is made, where both are placed alike",
    ),
    "uneven-microbatches": (
        "{0} do not come out even: later stages compute with rows that do not exist",
        "drop or pad the last batch: its rows have to be a multiple of the micro-batches (drop_last=True)",
    ),
}


@mistake("traps", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name each call once."""
    told = set()
    for noted in evidence.ranks.values():
        for event in noted[Trap]:
            words = _WORDS.get(event.kind)
            if words is not None and (event.kind, event.at) not in told:
                told.add((event.kind, event.at))
                text, advice = (each.format(event.detail, len(evidence.ranks)) for each in words)
                yield Mistake(text, event.at, advice)
