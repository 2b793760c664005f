"""A one-line answer from each report."""

from collections.abc import Iterator, Sequence

from dpdemo.arithmetic.chunk import even_batch_sizes_near
from dpdemo.models.messages import find_known
from dpdemo.results.advice import find
from dpdemo.results.batches import BatchGroup
from dpdemo.results.check import CheckReport
from dpdemo.results.diagnosis import Answer, Diagnosis, Mark
from dpdemo.results.execution import ExecReport
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import Answer as MemoryAnswer
from dpdemo.results.speedup import SpeedupReport
from dpdemo.results.split import SplitReport
from dpdemo.sizes import size
from dpdemo.wording import counted

EVEN, RIGHT, FITS, PAYS, NEXT = (
    "Is the batch split evenly?",
    "Is it right?",
    "Does it fit?",
    "Does it pay?",
    "What next?",
)
_OURS = ("--gpus", "-g", "--gpu", "--gpu-memory", "--quiet", "-q", "--link", "--input", "--save")
"""Options of `doctor` that people may write behind a script."""
_FITS: dict[MemoryAnswer, tuple[Mark, str]] = {
    "fits": ("good", "yes"),
    "tight": ("look", "tightly"),
    "does not fit": ("bad", "no"),
}


def evenness(report: SplitReport, more: str) -> Answer:
    """Judge how the batches of an epoch are split."""
    found = find(report)
    if not found:
        group = report.batches[0]
        rows = f"{group.largest} rows on each of {counted(group.num_replicas, 'GPU')}"
        return Answer(EVEN, "good", f"yes: {rows}", more)
    return Answer(EVEN, "look", f"no: {_unevenness(report.batches)}", more)


def _unevenness(groups: Sequence[BatchGroup]) -> str:
    worst = min(groups, key=lambda group: group.utilization)
    rows = " to ".join(map(str, sorted({worst.smallest, worst.largest})))
    parts = [f"a batch of {worst.batch_size} gives {rows} rows per GPU"]
    if len(worst.idle):
        parts.append(f"{counted(len(worst.idle), 'GPU')} idle")
    if worst.sample_weight > 1:
        parts.append(
            f"a sample of the shortest chunk counts {worst.sample_weight:.2f} times its fair share if the "
            "loss is averaged inside the model"
        )
    return "; ".join(parts)


def evenness_of_program(report: ExecReport, more: str) -> Answer:
    """Judge how a program's calls were split."""
    groups = [group for use in report.uses for group in use.splits if group.in_model]
    if not groups:
        return Answer(EVEN, "unknown", "the program made no DataParallel call", more)
    uneven = [group for group in groups if group.utilization < 1]
    if not uneven:
        return Answer(EVEN, "good", "yes: every call gave each GPU the same number of rows", more)
    return Answer(EVEN, "look", f"not always: {_unevenness(uneven)}", more)


def rightness(report: CheckReport, more: str) -> Answer:
    """Report the first finding of a check, and whether the check was complete."""
    if not report.findings and (report.ended_by or not report.compared):
        return Answer(RIGHT, "unknown", report.nothing_found, more)
    if not report.findings and report.notes:
        found = f"no pitfalls in what could be looked at: {'; '.join(report.notes)}"
        return Answer(RIGHT, "unknown", found, more)
    if not report.findings:
        return Answer(RIGHT, "good", "yes: equal to one GPU in all that was tried", more)
    first, *others = report.findings
    names = dict.fromkeys(f"{each.code} {each.name}" for each in others)
    rest = f"; also {', '.join(names)}" if names else ""
    ended = f"; {report.ending}" if report.ended_by else ""
    text = f"{first.code} {first.name}: {first.message}{rest}{ended}"
    return Answer(RIGHT, "bad" if not report.ok else "look", text, more)


def fitting(report: MemoryReport, more: str) -> Answer:
    """Judge whether the GPU with the least room has enough for its whole process."""
    fullest = report.fullest
    if fullest.capacity_bytes is None:
        held = f"{fullest.device} holds {size(fullest.peak_bytes)} at its fullest"
        return Answer(FITS, "unknown", f"{held}; name a card with --gpu or --gpu-memory to compare", more)
    mark, said = _FITS[report.answer]
    needed = f"{fullest.device} needs {size(fullest.needed_bytes)} of {size(fullest.capacity_bytes)}"
    return Answer(FITS, mark, f"{said}: {needed}, the CUDA context included", more)


def fitting_of_program(report: ExecReport) -> Answer:
    """Report the peak of the fullest GPU of a program."""
    peak = max(report.peak_bytes, default=0)
    index = report.peak_bytes.index(peak) if report.peak_bytes else 0
    held = f"cuda:{index} held {size(peak)} at its fullest"
    if report.capacity_bytes is None:
        return Answer(FITS, "unknown", f"{held}; name a card with --gpu or --gpu-memory to compare")
    return Answer(FITS, "good", f"yes: {held}, of {size(report.capacity_bytes[index])}")


def paying(report: SpeedupReport, more: str) -> Answer:
    """Report the step of one GPU, with the whole batch, from which more GPUs pay."""
    return Answer(PAYS, "unknown", report.summary, more)


def next_step(answers: Sequence[Answer], batch_size: int | None, num_gpus: int) -> Answer:
    """Recommend the next step: fix errors, make it fit, choose another batch, or go on to DDP.

    Only the last is marked as good: the others follow from an answer that is not.
    """
    repair = next(_repairs(answers, batch_size, num_gpus), None)
    if repair is not None:
        return Answer(NEXT, "look", repair)
    text = "DistributedDataParallel is faster on the same GPUs: dpdemo simulate --strategy ddp previews it"
    return Answer(NEXT, "good", text)


def _repairs(answers: Sequence[Answer], batch_size: int | None, num_gpus: int) -> Iterator[str]:
    marks = {answer.question: answer for answer in answers}
    if RIGHT in marks and marks[RIGHT].mark == "bad":
        yield f"fix what is not right: {marks[RIGHT].more} shows how"
    if FITS in marks and marks[FITS].mark in {"bad", "look"}:
        yield f"find the largest batch that fits: {marks[FITS].more} --fit"
    if EVEN in marks and marks[EVEN].mark == "look" and batch_size is not None:
        near = even_batch_sizes_near(batch_size, num_gpus)
        yield f"take a batch that {num_gpus} GPUs share evenly: {' or '.join(map(str, near))}"


def _to_go_on(report: ExecReport, ended_by: str) -> str:
    """Advise on a program that died; an option of dpdemo behind the script may be why."""
    if "--ranks" in report.arguments:
        number = "".join(report.arguments[report.arguments.index("--ranks") + 1 :][:1])
        return f"run its ranks: dpdemo exec --ranks {number or 2} {report.program}"
    misplaced = [word for word in report.arguments if word.partition("=")[0] in _OURS]
    if misplaced:
        return f"write {misplaced[0]} before {report.program}: behind it, it belongs to the program"
    known = find_known(ended_by, is_of_rank=False)
    return "make the program run to its end" if known is None else known.todo


def of_program(report: ExecReport, findings: CheckReport) -> Diagnosis:
    """Answer for a program that was run on virtual GPUs."""
    words = " ".join([report.program, *report.arguments])
    more = f"dpdemo exec --gpus {len(report.devices)}"
    evenness = evenness_of_program(report, f"{more} {words}")
    right = rightness(findings, f"{more} --check {words}")
    if evenness.mark == "unknown" and right.mark == "good":  # nothing was found where nothing was tried
        right = Answer(RIGHT, "unknown", evenness.text, right.more)
    pays = "not computed for a program: dpdemo speedup takes its model"
    found = [evenness, fitting_of_program(report), Answer(PAYS, "unknown", pays), right]
    if findings.ended_by:
        found.append(Answer(NEXT, "look", _to_go_on(report, findings.ended_by)))
    elif right.mark == "unknown":
        found.append(Answer(NEXT, "look", "let the program reach a call of torch.nn.DataParallel"))
    else:
        found.append(next_step(found, None, len(report.devices)))
    return Diagnosis(report.program, len(report.devices), None, (), tuple(found))
