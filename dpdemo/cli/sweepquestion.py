"""What `dpdemo sweep` is to predict of a model, checked before torch is loaded."""

from typing import get_args

from dpdemo.cli.memoryoptions import read_training
from dpdemo.cli.sweepoptions import Given
from dpdemo.config.fields import Config
from dpdemo.config.inputspec import read_input
from dpdemo.config.load import make_config, read_values
from dpdemo.config.targets import is_target
from dpdemo.errors import UsageError
from dpdemo.reports.memory import Optimizer
from dpdemo.reports.sweep import Predicted
from dpdemo.sweeping.questions import Question, make_question
from dpdemo.timing.links import chosen_link
from dpdemo.wording import show_typed


def read_question(of: Predicted, given: Given, file: str | None) -> Question:
    """Check the options together.

    Raises:
        UsageError: naming the option, what was expected and what was got.

    """
    if given.input and given.inputs is not None:
        raise UsageError("expected one of them, got both - at options `--input` and `--inputs`")
    link = chosen_link(given.link, given.bandwidth)
    if given.inputs is not None and not is_target(given.inputs):
        raise UsageError(f"expected `pkg.mod:function`, got {given.inputs[:60]!r} - at option `--inputs`")
    for text in given.input:
        read_input(text)
    question = make_question(
        _config(given.target, file),
        read_training(_optimizer(given.optimizer), given.loss, amp=given.amp, inference=given.inference),
        given.inputs or list(given.input) or None,
        gpu_memory=given.gpu_memory,
        card=given.gpu,
        reserve=given.reserve,
        link=link or "",
        steps=given.one_gpu_step,
        seq_len=given.seq_len,
        image_size=given.image_size,
        numbers=given.numbers,
    )
    question.check(of)
    return question


def _config(target: str, file: str | None) -> Config:
    values, where = read_values(file) if file is not None else ({}, {})
    if target:
        values, where = {**values, "model": target}, {**where, "model": "argument TARGET"}
    return make_config(values, where)


def _optimizer(name: str | None) -> Optimizer | None:
    known: dict[str, Optimizer] = {each: each for each in get_args(Optimizer)}
    if name is not None and name not in known:
        raise UsageError(f"expected {', '.join(known)}, got {show_typed(name)} - at option `--optimizer`")
    return None if name is None else known[name]
