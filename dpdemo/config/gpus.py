"""The option `--gpus`, which means the same in every command (and the same as `devices` in Lightning).

3      a count: the first three
0,2    these ordinals, in replica order
3,     the one GPU with ordinal 3
0-3    a range of ordinals, both ends included; `0-3,6` is a list with a range in it
all    all visible GPUs
"""

import re
from typing import TYPE_CHECKING

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.config.catalogue import MODELS
from dpdemo.config.numbers import whole_number
from dpdemo.errors import UsageError
from dpdemo.wording import show

if TYPE_CHECKING:
    from dpdemo.arithmetic.cards import Card


def parse_gpus(text: str) -> int | tuple[int, ...] | str:
    """Read the value of `--gpus`; a list may repeat an ordinal and contain spaces.

    Raises:
        UsageError: for anything else, saying what was expected.

    """
    if text.strip().lower() == "all":
        return "all"
    numbers: list[int] = []
    for part in re.sub(",[ ]*$", "", text).split(","):
        span = re.fullmatch(r" *([0-9]+)(?:-([0-9]+))? *", part)  # isdigit lets ³ and ٣ through
        if span is None:
            expected = "a count such as 3, ordinals such as 0,2 or 0-3, or `all`"
            raise _refused(expected, text, _meant(text))
        first, last = _bounded(span[1]), _bounded(span[2] or span[1])
        if last < first:
            hint = f"write {last}-{first}, or list the ordinals in the order you want"
            raise _refused("a range that goes up", text, hint)
        numbers += range(first, last + 1)
    if "," in text or "-" in text:
        if MAX_GPUS in numbers or len(numbers) > MAX_GPUS:
            raise _too_many(str(MAX_GPUS) if MAX_GPUS in numbers else text)
        return tuple(numbers)
    if not numbers[0]:
        hint = "for the GPU with ordinal 0 write `{gpus=[0]}`; leave `{gpus=}` out for the CPU"
        raise _refused("a count of 1 or more", text, hint)
    return numbers[0]


def _meant(text: str) -> str:
    """Name the option that a value which is no list of GPUs was meant for."""
    if "cuda:" in text and (named := re.findall(r"[0-9]+", text)):
        return f"write the ordinals alone: `{{gpus=[{', '.join(named)}]}}`"
    if text.endswith((".yaml", ".yml")):
        return f"pass a config as `{{config={text}}}`"
    if ".py" in text or text in MODELS:
        return f"pass a model as `{{model={text}}}`"
    return "separate ordinals by single commas: 0,1,2"


def _bounded(digits: str) -> int:
    number = whole_number(digits, 0, MAX_GPUS)
    if number is None:
        raise _too_many(digits)
    return number


def _too_many(got: str) -> UsageError:
    return _refused(
        f"at most {MAX_GPUS} GPUs, numbered 0 to {MAX_GPUS - 1}",
        got,
        "PyTorch can number no more; {strategy=ddp} with {nodes=4} previews several machines",
    )


def _refused(expected: str, got: str, hint: str) -> UsageError:
    return UsageError(f"expected {expected}, got {show(got)}", key="gpus", hint=hint)


def parse_num_virtual(text: str) -> int:
    """Read `--gpus` as the number of virtual GPUs that a program or a model finds.

    Virtual GPUs are numbered from 0, so of lists only 0,1,2 and its like has one meaning. Others could mean
    renumbering, as with CUDA_VISIBLE_DEVICES, or that the program names these ordinals itself: neither is
    guessed.

    Raises:
        UsageError: for anything else, or more than torch can number.

    """
    found = parse_gpus(text)
    if isinstance(found, str):
        raise _refused("a count such as 8", found, "say how many: `{gpus=8}`")
    if isinstance(found, tuple):
        if found != tuple(range(len(found))):
            raise _refused(
                "a count such as 8",
                text,
                f"virtual GPUs are numbered from 0: {{gpus={max(found) + 1}}} for a program that names "
                f"cuda:{max(found)}, {{gpus={len(set(found))}}} for one that takes all it finds",
            )
        return len(found)
    return found


def card_named(text: str) -> "Card":
    """Find the card that `--gpu` names.

    Raises:
        UsageError: if no card has the name, or several do.

    """
    from dpdemo.arithmetic.cards import find_card  # only a GPU with a name needs the table

    try:
        return find_card(text)
    except ValueError as error:
        hint = "any other card is named by its memory: {gpu_memory=24GiB}"
        raise UsageError(str(error), key="gpu", hint=hint) from None
