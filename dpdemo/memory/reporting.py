"""The report of a measured step: the GPUs of DataParallel, or those of all ranks, and what was assumed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.config.fields import Config
from dpdemo.config.ranks import ranks_per_node
from dpdemo.memory.case import Case
from dpdemo.memory.inputs import BatchMaker
from dpdemo.memory.ranks import gpus_of_ranks
from dpdemo.memory.steps import Measured, Stepper, num_parameters
from dpdemo.memory.wrapping import is_one_group
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import GpuMemory
from dpdemo.results.wrapping import Wrapping
from dpdemo.sizes import size

_MOST_PLACES = 3
"""The most places that a note names."""
_WORTH_A_NOTE = 0.03
"""The share of a peak from which an assumption is noted."""


def report_of(case: Case, stepper: Stepper, measured: Measured) -> MemoryReport:
    """Report a step for the chosen GPUs of DataParallel, or for rank 0."""
    config = case.config
    is_ranks = config.strategy != "dp"
    return MemoryReport(
        config=config,
        training=replace(stepper.training, loss=measured.loss),
        batch_size=measured.batch_size,
        num_parameters=num_parameters(stepper.built.model),
        inputs=measured.inputs,
        gpus=(measured.gpus[0],) if is_ranks else _chosen_gpus(config, measured),
        card=stepper.hardware.found.name if stepper.hardware.found else "",
        notes=(
            *_assumed(stepper.batches),
            *_made_up(stepper),
            *_of_wrapping(case, stepper),
            *_of_output(stepper, measured),
        ),
        wrapping=None if case.wrapping == Wrapping() else case.wrapping,
    )


def with_all_ranks(case: Case, report: MemoryReport, shards: Sequence[tuple[int, ...]]) -> MemoryReport:
    """Put the GPUs of all ranks into the report of rank 0; of the last one, if its shards are smaller."""
    if case.config.strategy == "dp":
        return report
    last = None
    if shards[-1] != shards[0]:
        case.say("the last rank, whose shards are smaller")
        rank = len(shards) - 1
        with case.opened(rank) as stepper:
            last = stepper.measure(report.batch_size).gpus[rank % len(stepper.gpus)]
    gpus, note = gpus_of_ranks(case.config, shards, report.batch_size, report.gpus[0], last)
    capacities = case.hardware.capacities(ranks_per_node(case.config) or 1)
    placed = [
        replace(gpu, capacity_bytes=capacities[number % len(capacities)]) for number, gpu in enumerate(gpus)
    ]
    return replace(report, gpus=tuple(placed), notes=tuple(filter(None, (*report.notes, note))))


def _chosen_gpus(config: Config, measured: Measured) -> tuple[GpuMemory, ...]:
    """Return the GPUs of a config; one that is named twice is one GPU."""
    ordinals = config.ordinals or ()
    rows = dict.fromkeys(ordinals, 0)
    found = split_batch(measured.batch_size, len(ordinals)).rows()
    for ordinal, chunk in zip(ordinals, found, strict=True):
        rows[ordinal] += chunk
    if config.output_device is not None:
        rows.setdefault(config.output_device, 0)
    return tuple(replace(measured.gpus[ordinal], rows=number) for ordinal, number in rows.items())


def _of_wrapping(case: Case, stepper: Stepper) -> Iterator[str]:
    if case.config.strategy == "fsdp2" and is_one_group(stepper.built.model):
        yield "fully_shard has the whole model as one group, since no block is named or repeated (--blocks)."


def _made_up(stepper: Stepper) -> Iterator[str]:
    """Note checks that were assumed to pass, and factors of an optimizer that were assumed to be 1."""
    found = stepper.gpus.made_up
    for is_check, said in (
        (True, "checks pass that read"),
        (False, "the optimizer scales by 1 where it reads"),
    ):
        places = [place for place, answer in found.items() if isinstance(answer, bool) is is_check]
        if places:
            more = ", ..." if len(places) > _MOST_PLACES else ""
            where = ", ".join(places[:_MOST_PLACES]) + more
            yield f"Assumed: {said} numbers that are not known ({where}); --numbers predicts with real ones."


def _of_output(stepper: Stepper, measured: Measured) -> Iterator[str]:
    """Note that the output is taken for held during backward, where that makes a difference."""
    if stepper.training.frees_output or stepper.training.inference:
        return
    held = [
        num_bytes
        for gpu, num_bytes in zip(measured.gpus, measured.output_bytes, strict=True)
        if gpu.phase == "backward" and num_bytes > _WORTH_A_NOTE * gpu.peak_bytes
    ]
    if held:
        yield (
            f"Assumed: the loop holds the model's output ({size(max(held))}) until backward is over; "
            "--frees-output predicts one that does not."
        )


def _assumed(batches: BatchMaker) -> tuple[str, ...]:
    notes = {
        f"--input {batches.worked_out}, inferred from the first layer.": batches.worked_out,
        "Taken as a model that was called before it was wrapped, as one of transformers must be: its "
        "replicas would put in hooks that they share, and may fail (DP317).": batches.has_new_hooks,
    }
    return tuple(note for note, is_given in notes.items() if is_given)
