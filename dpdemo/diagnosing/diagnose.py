"""`diagnose`: simulate, check, memory and speedup for one model, one answer of each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

from dpdemo.checking.engine import check_found
from dpdemo.checking.request import Request
from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.diagnosing import answers
from dpdemo.errors import DpdemoError
from dpdemo.memory import predict_memory
from dpdemo.models.inputspec import read_input
from dpdemo.models.targets import batches_of_target, find_model
from dpdemo.results.diagnosis import Answer, Diagnosis
from dpdemo.splitting.predict import predict
from dpdemo.timing import predict_speedup
from dpdemo.timing.links import DEFAULT_LINK, find_link
from dpdemo.timing.observe import observe_workload
from dpdemo.virtual import virtual_gpus

DEFAULT_GPUS = 4
DEFAULT_BATCH_SIZE = 32
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """A model to diagnose: a target, the number of GPUs, the batch and the inputs.

    `gpu` is the name of the GPUs' card, `gpu_memory` what each can hold (`24GiB`, or a list with commas);
    `link` joins them.
    """

    target: str
    num_gpus: int = DEFAULT_GPUS
    batch_size: int | None = None
    inputs: tuple[str, ...] = ()
    gpu_memory: str | None = None
    gpu: str | None = None
    link: str = DEFAULT_LINK

    @property
    def config(self) -> Config:
        """One batch of it as a config."""
        size = self.batch_size or DEFAULT_BATCH_SIZE
        return make_config(
            {"model": self.target, "gpus": self.num_gpus, "batch_size": size, "data_size": size},
        )

    @property
    def sizes(self) -> list[str] | str | None:
        """The capacity of the GPUs: one size for all, or one for each."""
        return self.gpu_memory.split(",") if self.gpu_memory and "," in self.gpu_memory else self.gpu_memory

    def hardware(self) -> Iterator[str]:
        """Write the options of `dpdemo memory` that name the GPUs."""
        if self.gpu is not None:
            yield f"--gpu {quote(self.gpu)}"
        if self.gpu_memory is not None:
            yield f"--gpu-memory {quote(self.gpu_memory)}"

    def command(self, name: str, *more: str) -> str:
        """Write the command that tells more."""
        target = quote(self.target)
        model = [target] if name in {"check", "speedup"} else ["--model", target]
        inputs = [] if name == "simulate" else [f"--input {quote(text)}" for text in self.inputs]
        return " ".join(["dpdemo", name, *model, f"--gpus {self.num_gpus}", *inputs, *more])


def diagnose(case: Case, progress: Progress | None = None) -> Diagnosis:
    """Answer the questions about a model under DataParallel.

    Raises:
        UsageError: if the model cannot be built, or its inputs are neither given nor inferable.

    """
    say = progress or (lambda _: None)
    case.config  # noqa: B018 - a wrong target is an error before anything is built
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
        report = predict_memory(config, inputs=given, gpu_memory=case.sizes, gpu=case.gpu)
        return answers.fitting(report, case.command("memory", size, *case.hardware()))

    def pays() -> Answer:
        report = predict_speedup(observe_workload(config, given), find_link(case.link), case.num_gpus)
        return answers.paying(report, case.command("speedup", size, f"--link {case.link}"))

    yield "splitting", lambda: answers.evenness(predict(config), case.command("simulate", size))
    yield "checking", lambda: answers.rightness(_checked(case), case.command("check"))
    yield "predicting memory", lambda: _or_why_not(answers.FITS, fits)
    yield "counting what is copied", lambda: _or_why_not(answers.PAYS, pays)


def _or_why_not(question: str, ask: Callable[[], Answer]) -> Answer:
    """Answer, or report the error: the other questions are still answered."""
    try:
        return ask()
    except DpdemoError as error:
        return Answer(question, "unknown", error.message.partition("\n")[0])


def _checked(case: Case) -> Any:
    given = list(case.inputs) or None
    return check_found(
        lambda: (find_model(case.target), given),
        Request(gpus=case.num_gpus, batch_size=case.batch_size, target=case.target),
    )


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
