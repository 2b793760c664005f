"""The `--gpus` option: a list of ordinals as in CUDA_VISIBLE_DEVICES, `all`, or a count."""

import re

from dpdemo.errors import UsageError

Gpus = int | tuple[int, ...] | str
"""A count, the ordinals in replica order, or the word `all`."""

MAX_ORDINAL = 2**31 - 1
MAX_VIRTUAL = 128
"""Devices that torch can number: an index is an int8 (c10/core/Device.h)."""


def parse_gpus(text: str, *, lone_number_is_count: bool) -> Gpus:
    """Read the value of `--gpus`.

    A lone number is a count where no device is touched (`simulate --gpus 8`), and an ordinal where one is
    (`run --gpus 0`). A list names ordinals in replica order, and may repeat one; spaces may stand around a
    number.

    Raises:
        UsageError: for anything else, saying what was expected.

    """
    where = "option `--gpus`"
    if text.strip() == "all":
        return "all"
    expected = (
        "a count such as 8, or ordinals such as 0,1,2"
        if lone_number_is_count
        else ("ordinals such as 0,1,2, or `all`")
    )
    parts = [part.strip(" ") for part in text.split(",")]
    if not all(re.fullmatch("[0-9]+", part) for part in parts):  # str.isdigit would let ³ and ٣ through
        raise UsageError(f"expected {expected}, got {_short(text)} - at {where}", hint=_gpus_hint(text))
    for part in parts:
        if len(part) > 10 or int(part) > MAX_ORDINAL:
            raise UsageError(
                f"expected numbers of at most {MAX_ORDINAL}, got {_short(part)} - at {where}",
                hint="real machines have 16 GPUs at most; a preview reads well up to some thousands",
            )
    numbers = tuple(int(part) for part in parts)
    if len(numbers) > 1 or not lone_number_is_count:
        return numbers
    if numbers[0] < 1:
        raise UsageError(
            f"expected a count of 1 or more, got 0 - at {where}", hint="leave `--gpus` out for the CPU"
        )
    return numbers[0]


def parse_num_virtual(text: str) -> int:
    """Read `--gpus` where it says how many virtual GPUs an unmodified program is to find.

    Virtual GPUs are numbered from 0, so of lists only 0,1,2 and its like has one meaning. Others could mean
    renumbering, as with CUDA_VISIBLE_DEVICES, or that the program names these ordinals itself: neither is
    guessed.

    Raises:
        UsageError: for anything else, or more than torch can name.

    """
    found = parse_gpus(text, lone_number_is_count=True)
    where = "option `--gpus`"
    if isinstance(found, str):
        raise UsageError(
            f"expected a count such as 8, got {found!r} - at {where}", hint="say how many: --gpus 8"
        )
    if isinstance(found, tuple):
        if found != tuple(range(len(found))):
            raise UsageError(
                f"expected a count such as 8, got {_short(text)} - at {where}",
                hint=f"virtual GPUs are numbered from 0: --gpus {max(found) + 1} for a program that names "
                f"cuda:{max(found)}, --gpus {len(set(found))} for one that takes all it finds",
            )
        found = len(found)
    if found > MAX_VIRTUAL:
        raise UsageError(
            f"expected at most {MAX_VIRTUAL} virtual GPUs, got {found} - at {where}",
            hint="torch numbers no more",
        )
    return found


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _gpus_hint(text: str) -> str:
    if not text.strip():
        return "leave `--gpus` out to choose none"
    span = re.fullmatch(r"([0-9]{1,4})-([0-9]{1,4})", text, re.ASCII)
    if span and int(span[1]) <= int(span[2]):
        numbers = range(int(span[1]), int(span[2]) + 1)
        if len(numbers) <= 16:
            return f"spans are not known here; write --gpus {','.join(map(str, numbers))}"
    return "separate ordinals by single commas: --gpus 0,1,2"
