"""`diagnose`: simulate, check, memory and speedup for one model, and what a person should know of each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpdemo.checking.engine import check
from dpdemo.config.fields import Config
from dpdemo.config.inputspec import read_input
from dpdemo.config.load import make_config
from dpdemo.diagnosing import answers
from dpdemo.errors import DpdemoError
from dpdemo.memory import predict_memory
from dpdemo.models.targets import find_model, work_out_input
from dpdemo.prediction.predict import predict
from dpdemo.reports.diagnosis import Answer, Diagnosis
from dpdemo.timing import predict_speedup
from dpdemo.timing.links import LINKS
from dpdemo.timing.observe import observe_workload

DEFAULT_GPUS = 4
DEFAULT_BATCH_SIZE = 32
_LINK = "pcie4"
_WHERE = "argument TARGET"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """What is diagnosed: a target, over how many GPUs, with which batch, inputs and memory."""

    target: str
    num_gpus: int = DEFAULT_GPUS
    batch_size: int | None = None
    inputs: tuple[str, ...] = ()
    gpu_memory: str | Sequence[int] | None = None

    @property
    def config(self) -> Config:
        """One batch of it as a config."""
        size = self.batch_size or DEFAULT_BATCH_SIZE
        return make_config(
            {"model": self.target, "gpus": self.num_gpus, "batch_size": size, "data_size": size},
            {"model": _WHERE},
        )

    def command(self, name: str, *more: str) -> str:
        """Write the command that tells more."""
        model = [self.target] if name in {"check", "speedup"} else ["--model", self.target]
        inputs = [] if name == "simulate" else [f"--input {text}" for text in self.inputs]
        return " ".join(["dpdemo", name, *model, f"--gpus {self.num_gpus}", *inputs, *more])


def diagnose(case: Case, progress: Progress | None = None) -> Diagnosis:
    """Answer what a person asks of a model under DataParallel.

    Raises:
        UsageError: if the model cannot be built, or its inputs are neither given nor can be worked out.

    """
    say = progress or (lambda _: None)
    case.config  # noqa: B018 - a wrong target is told before anything is built
    case, assumed = _with_inputs(case)
    found = []
    for what, ask in _questions(case):
        say(what)
        found.append(ask())
    found.append(answers.next_step(found, case.batch_size, case.num_gpus))
    return Diagnosis(case.target, case.num_gpus, case.batch_size, assumed, tuple(found))


def _questions(case: Case) -> Iterator[tuple[str, Callable[[], Answer]]]:
    config, given = case.config, list(case.inputs) or None
    size = f"--batch-size {config.batch_size}"

    def fits() -> Answer:
        report = predict_memory(config, inputs=given, gpu_memory=case.gpu_memory)
        return answers.fitting(report, case.command("memory", size))

    def pays() -> Answer:
        workload = observe_workload(config, given)
        report = predict_speedup(workload, LINKS[_LINK], (case.num_gpus,))
        return answers.paying(report, case.command("speedup", "--one-gpu-step 49ms"))

    yield "splitting", lambda: answers.evenness(predict(config), case.command("simulate", size))
    yield "checking", lambda: answers.rightness(_checked(case), case.command("check"))
    yield "predicting memory", lambda: _or_why_not(answers.FITS, fits)
    yield "counting what is copied", lambda: _or_why_not(answers.PAYS, pays)


def _or_why_not(question: str, ask: Callable[[], Answer]) -> Answer:
    """Answer, or say why there is no answer: the other questions are answered all the same."""
    try:
        return ask()
    except DpdemoError as error:
        return Answer(question, "unknown", error.message.partition("\n")[0])


def _checked(case: Case) -> Any:
    return check(find_model(case.target, _WHERE), list(case.inputs) or None, gpus=case.num_gpus)


def _with_inputs(case: Case) -> tuple[Case, tuple[str, ...]]:
    """Complete the batch and the inputs; say what was worked out."""
    if case.inputs:
        return replace(case, batch_size=read_input(case.inputs[0]).shape[0]), ()
    size = case.batch_size or DEFAULT_BATCH_SIZE
    guessed = work_out_input(find_model(case.target, _WHERE), case.target, size, _WHERE)
    if guessed is None:
        return replace(case, batch_size=size), ()
    assumed = (f"--input {guessed}, worked out from the first layer",)
    return replace(case, batch_size=size, inputs=(guessed,)), assumed
