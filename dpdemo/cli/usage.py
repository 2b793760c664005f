"""Mistakes in a command line, told as all others are: expected, got, where, and the next step."""

import difflib
import re
from typing import Any

from dpdemo.config.fields import KEYS
from dpdemo.errors import UsageError
from dpdemo.saving import FORMS, PICTURES
from dpdemo.wording import show

_CHOICE = re.compile(r"(?:Value error, )?'(.*)' is not one of (.*)", re.DOTALL)
_EXTRA = re.compile(r"Got unexpected extra arguments? ?(?:\(s\))? ?\((.*)\)\.?", re.DOTALL | re.IGNORECASE)
_ELSEWHERE = {
    "--bs": "--batch-size",
    "-b": "--batch-size",
    "--batch": "--batch-size",
    "--num-gpus": "--gpus",
    "--ngpus": "--gpus",
    "--n-gpus": "--gpus",
    "--devices": "--gpus",
    "--device-ids": "--gpus",
    "--nproc-per-node": "--set processes=",
    "--json": "--format json",
    "--csv": "--format csv",
    "--out": "--save",
    "--output": "--save",
    "-o": "--save",
    "--card": "--gpu",
    "--shape": "--input",
    "--input-shape": "--input",
    "md": "markdown",
    "text": "table",
}
"""What other programs call what is asked for here."""
_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def usage_error(error: Any) -> UsageError:
    """Say in our words what the parser of options found."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "dpdemo"
    return UsageError(_message(error), hint=_hint(error, command))


def _message(error: Any) -> str:
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        return f"expected a known option, got {show(error.option_name)}"
    parameter = getattr(error, "param", None)
    if parameter is None:
        return _of_the_line(error.format_message())
    where = _where(parameter)
    if hasattr(error, "param_type"):  # it is missing
        choices = parameter.type_descriptor.choices
        what = f"one of {', '.join(choices)}" if choices else parameter.metavar or parameter.name
        return f"expected {what}, got nothing - at {where}"
    choice = _CHOICE.fullmatch(str(error.message))
    if choice is not None:
        words = choice[2].rstrip(".").replace("'", "")
        return f"expected one of {words}, got {show(choice[1])} - at {where}"
    kind = re.match(r"Input should be a valid (\w+)", str(error.message))
    if kind is not None:
        return f"expected {_KINDS.get(kind[1], kind[1])}{_got(error)} - at {where}"
    return f"{_plain(str(error.message).removeprefix('Value error, '))} - at {where}"


def _of_the_line(message: str) -> str:
    extra = _EXTRA.fullmatch(message)
    if extra is None:
        return _plain(message)
    return f"expected nothing more, got {show(extra[1])} - at the end of the line"


def _got(error: Any) -> str:
    """Say what stood there, where the cause of the error knows it."""
    cause = error.__cause__ or error.__context__
    if not hasattr(cause, "errors"):
        return ""
    return f", got {show(cause.errors()[0]['input'])}"


def _where(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"argument {parameter.metavar or parameter.name.upper()}"
    return f"option `{parameter.opts[0]}`"


def _plain(message: str) -> str:
    """Write a sentence of the parser as the other errors are: no capital, no full stop."""
    text = message.rstrip(".")
    return text[:1].lower() + text[1:]


def _hint(error: Any, command: str) -> str:
    extra = _EXTRA.fullmatch(error.format_message())
    if extra is not None and extra[1].endswith((*PICTURES, *FORMS)):
        return f"`--save {extra[1]}` writes a file"
    if extra is not None and extra[1].isdecimal() and "--gpus" in _known_options(error):
        return f"`--gpus {extra[1]}` says how many GPUs"
    near = _near(error)
    if near:
        return f"did you mean {' or '.join(f'`{one}`' for one in near)}?"
    return f"`{command} --help` shows what there is"


def _near(error: Any) -> list[str]:
    """List what was probably meant: the word that other programs have for it, or what is spelt alike."""
    option = getattr(error, "option_name", "")
    if option:
        known = _known_options(error)
        key = option.removeprefix("--no-").lstrip("-").replace("-", "_")
        if "--set" in known and key in KEYS:
            return [f"--set {key}="]
        other = _ELSEWHERE.get(option)
        alike = difflib.get_close_matches(option, known, n=2, cutoff=0.65)
        longer = [name for name in known if len(option) > 4 and name.startswith(option)]
        return [other] if other and other.split()[0] in known else longer[:1] or alike
    choice = _CHOICE.fullmatch(str(getattr(error, "message", "")))
    if choice is None:
        return []
    words = choice[2].rstrip(".").replace("'", "").split(", ")
    meant = [_ELSEWHERE[choice[1].lower()]] if choice[1].lower() in _ELSEWHERE else []
    return [word for word in meant if word in words] or difflib.get_close_matches(choice[1], words, n=1)


def _known_options(error: Any) -> list[str]:
    context = getattr(error, "ctx", None)
    params = context.command.get_params(context) if context is not None else ()
    return [
        name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("--")
    ]
