"""`diagnose`: simulate, memory, speedup and check for one model, one answer of each."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from dpdemo.checking.engine import check_found
from dpdemo.checking.request import Request
from dpdemo.diagnosing import answers
from dpdemo.diagnosing.case import DEFAULT_BATCH_SIZE, Case
from dpdemo.diagnosing.limit import limited
from dpdemo.errors import DpdemoError
from dpdemo.memory import predict_memory
from dpdemo.models.inputspec import read_input
from dpdemo.models.targets import batches_of_target, find_model
from dpdemo.results.diagnosis import Answer, Diagnosis
from dpdemo.results.memory import MemoryReport
from dpdemo.splitting.predict import predict
from dpdemo.timing import predict_speedup
from dpdemo.timing.links import find_link
from dpdemo.timing.observe import observe_workload
from dpdemo.virtual import virtual_gpus

Progress = Callable[[str], None]
Answered = Callable[[Diagnosis], None]
"""Takes the diagnosis as far as it is known: the answers come one by one."""


def diagnose(case: Case, progress: Progress | None = None, answered: Answered | None = None) -> Diagnosis:
    """Answer the questions about a model under DataParallel; those that need no numbers first.

    Raises:
        UsageError: if the model cannot be built, or its inputs are neither given nor inferable.

    """
    say = progress or (lambda _: None)
    case.config  # noqa: B018 - a wrong target is an error before anything is built
    case, assumed = _with_inputs(case)
    report = Diagnosis(case.target, case.num_gpus, case.batch_size, assumed, ())
    for what, ask in _questions(case, say):
        say(what)
        report = replace(report, answers=(*report.answers, ask()))
        if answered is not None:
            answered(report)
    last = answers.next_step(report.answers, case.batch_size, case.num_gpus)
    return replace(report, answers=(*report.answers, last))


def _questions(case: Case, say: Progress) -> Iterator[tuple[str, Callable[[], Answer]]]:
    config, given = case.config, list(case.inputs) or None
    size = f"--batch-size {config.batch_size}"

    def fits() -> Answer:
        return answers.fitting(_memory(case), case.command("memory", size, *case.hardware()))

    def pays() -> Answer:
        report = predict_speedup(observe_workload(config, given), find_link(case.link), case.num_gpus)
        return answers.paying(report, case.command("speedup", size, f"--link {case.link}"))

    yield "splitting", lambda: answers.evenness(predict(config), case.command("simulate", size))
    yield "predicting memory", lambda: _or_why_not(answers.FITS, fits)
    yield "counting what is copied", lambda: _or_why_not(answers.PAYS, pays)
    yield "checking", lambda: _right(case, say)


def _memory(case: Case) -> MemoryReport:
    given = list(case.inputs) or None
    return predict_memory(case.config, inputs=given, gpu_memory=case.sizes, gpu=case.gpu)


def _or_why_not(question: str, ask: Callable[[], Answer]) -> Answer:
    """Answer, or report the error: the other questions are still answered."""
    try:
        return ask()
    except DpdemoError as error:
        return Answer(question, "unknown", error.message.partition("\n")[0])


def _right(case: Case, say: Progress) -> Answer:
    """Check the model with a batch that this machine can run soon."""
    try:
        checked = limited(case, _memory)
    except DpdemoError:  # the size of a step is unknown where memory cannot be predicted
        checked = case
    request = Request(
        gpus=case.num_gpus,
        batch_size=checked.batch_size,
        target=case.target,
        progress=lambda text: say(f"checking, {text}"),
    )
    found = check_found(lambda: (find_model(case.target), list(checked.inputs) or None), request)
    answer = answers.rightness(found, checked.command("check"))
    if checked == case:
        return answer
    smaller = f"checked with {' '.join(checked.inputs)} to bound the work"
    return replace(answer, text=f"{answer.text}; {smaller}")


def _with_inputs(case: Case) -> tuple[Case, tuple[str, ...]]:
    """Complete the batch and the inputs; also return what was inferred."""
    if case.inputs:
        return replace(case, batch_size=read_input(case.inputs[0]).shape[0]), ()
    with virtual_gpus(case.num_gpus):  # a file may ask for GPUs as it is read
        model = find_model(case.target)
        batches = batches_of_target(model, case.target, case.batch_size, DEFAULT_BATCH_SIZE)
    case, guessed = replace(case, batch_size=batches.size), batches.worked_out
    if not guessed:
        return case, ()
    return replace(case, inputs=(guessed,)), (f"--input {guessed}, inferred from the first layer",)
