"""The option `--gpus`, which means the same in every command (and the same as `devices` in Lightning).

3      a count: the first three
0,2    these ordinals, in replica order
3,     the one GPU with ordinal 3
0-3    a range of ordinals, both ends included; `0-3,6` is a list with a range in it
all    all visible GPUs
"""

import re

from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.config.numbers import whole_number
from dpdemo.errors import UsageError

Gpus = int | tuple[int, ...] | str
"""A count, the ordinals in replica order, or the word `all`."""

_EXPECTED = "a count such as 3, ordinals such as 0,2 or 0-3, or `all`"
_WHERE = "option `--gpus`"


def parse_gpus(text: str) -> Gpus:
    """Read the value of `--gpus`; a list may repeat an ordinal, and spaces may stand around its parts.

    Raises:
        UsageError: for anything else, saying what was expected.

    """
    if text.strip().lower() == "all":
        return "all"
    parts = [part.strip(" ") for part in text.split(",")]
    is_list = len(parts) > 1
    if is_list and not parts[-1]:
        parts.pop()
    spans = [re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part) for part in parts]  # isdigit lets ³ and ٣ through
    if not parts or not all(spans):
        raise UsageError(f"expected {_EXPECTED}, got {_short(text)} - at {_WHERE}", hint=_hint(text))
    ends = [(_bounded(span[1]), _bounded(span[2] or span[1])) for span in spans if span]
    if not is_list and not (spans[0] and spans[0][2]):
        return _count(ends[0][0])
    return _ordinals(ends, text)


def _count(number: int) -> int:
    if number < 1:
        raise UsageError(
            f"expected a count of 1 or more, got 0 - at {_WHERE}",
            hint="for the GPU with ordinal 0 write `--gpus 0,`; leave `--gpus` out for the CPU",
        )
    return number


def _ordinals(ends: list[tuple[int, int]], text: str) -> tuple[int, ...]:
    for first, last in ends:
        if last < first:
            raise UsageError(
                f"expected a range that goes up, got {_short(text)} - at {_WHERE}",
                hint=f"write {last}-{first}, or list the ordinals in the order you want",
            )
    for _, last in ends:
        _check_most(last + 1, str(last))
    ordinals = tuple(ordinal for first, last in ends for ordinal in range(first, last + 1))
    _check_most(len(ordinals), _short(text))
    return ordinals


def _bounded(digits: str) -> int:
    number = whole_number(digits, 0, MAX_GPUS)
    _check_most(MAX_GPUS + 1 if number is None else number, _short(digits))
    return number or 0


def _check_most(count: int, got: str) -> None:
    if count > MAX_GPUS:
        raise UsageError(
            f"expected at most {MAX_GPUS} GPUs, numbered 0 to {MAX_GPUS - 1}, got {got} - at {_WHERE}",
            hint="PyTorch can number no more; --strategy ddp --nodes 4 previews several machines",
        )


def parse_num_virtual(text: str) -> int:
    """Read `--gpus` where it says how many virtual GPUs a program or a model is to find.

    Virtual GPUs are numbered from 0, so of lists only 0,1,2 and its like has one meaning. Others could mean
    renumbering, as with CUDA_VISIBLE_DEVICES, or that the program names these ordinals itself: neither is
    guessed.

    Raises:
        UsageError: for anything else, or more than torch can number.

    """
    found = parse_gpus(text)
    if isinstance(found, str):
        raise UsageError(
            f"expected a count such as 8, got `{found}` - at {_WHERE}", hint="say how many: --gpus 8"
        )
    if isinstance(found, tuple):
        if found != tuple(range(len(found))):
            raise UsageError(
                f"expected a count such as 8, got {_short(text)} - at {_WHERE}",
                hint=f"virtual GPUs are numbered from 0: --gpus {max(found) + 1} for a program that names "
                f"cuda:{max(found)}, --gpus {len(set(found))} for one that takes all it finds",
            )
        found = len(found)
    check_number(found, _WHERE)
    return found


def check_number(count: int, where: str) -> None:
    """Check that PyTorch can number so many devices.

    Raises:
        UsageError: if there are more.

    """
    if count > MAX_GPUS:
        raise UsageError(
            f"expected at most {MAX_GPUS} GPUs, numbered 0 to {MAX_GPUS - 1}, got one numbered {count - 1} - "
            f"at {where}",
            hint="PyTorch can number no more",
        )


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _hint(text: str) -> str:
    if not text.strip():
        return "leave `--gpus` out to choose none"
    named = re.findall(r"cuda:([0-9]+)", text)
    if named:
        return f"write the ordinals alone: --gpus {','.join(named)}{',' * (len(named) == 1)}"
    return "separate ordinals by single commas: --gpus 0,1,2"
