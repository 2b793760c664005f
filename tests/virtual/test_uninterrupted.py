"""Ctrl-C at any step of opening and closing a block leaves PyTorch as it was."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from test_block import changed, snapshot

from dpdemo.virtual import block, is_active, virtual_gpus
from dpdemo.virtual.uninterrupted import uninterrupted

PLACE = str(Path(block.__file__).parent)


def interrupted_at(number: int) -> int:
    """Open and close a block, with Ctrl-C at a step of its code; give the number of steps that were made."""
    steps = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.startswith(PLACE) or frame.f_code.co_name == "__del__":
            return None  # what is raised in a __del__, Python passes over
        if event == "line":
            steps += 1
            if steps == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        with virtual_gpus(2):
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return steps


def test_ctrl_c_at_any_step_leaves_nothing_behind() -> None:
    before = snapshot()
    num_steps = interrupted_at(0)
    assert num_steps > 300
    for number in [*range(1, 25), *range(25, num_steps - 25, 97), *range(num_steps - 25, num_steps + 1)]:
        interrupted_at(number)
        assert (number, changed(before), is_active()) == (number, [], False)
    with virtual_gpus(1):
        assert torch.ones(1, device="cuda").is_cuda


def test_ctrl_c_is_raised_when_everything_is_in_its_place() -> None:
    done = []

    def goes_on() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        goes_on()
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
