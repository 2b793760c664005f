"""Ctrl-C at any step of opening and closing a block leaves PyTorch as it was."""

import signal
import sys
from pathlib import Path

import pytest
import torch
from test_block import changed, snapshot

from dpdemo.virtual import block, is_active, virtual_gpus
from dpdemo.virtual.uninterrupted import uninterrupted

PLACE = str(Path(block.__file__).parent)
BETWEEN = {"block.py", "uninterrupted.py"}
"""Where Ctrl-C may come before it is held back: all their steps are tried, and some of the others."""


def interrupted_at(number):
    """Open and close a block, with Ctrl-C at a step of its code; give the file of each step that was made."""
    files = []

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(PLACE) or frame.f_code.co_name == "__del__":
            return None  # what is raised in a __del__, Python passes over
        if event == "line":
            files.append(Path(frame.f_code.co_filename).name)
            if len(files) == number:
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
    return files


@pytest.mark.slow
def test_ctrl_c_at_any_step_leaves_nothing_behind():
    before = snapshot()
    interrupted_at(0)  # the first time more is imported
    files = interrupted_at(0)
    assert len(files) > 300
    steps = enumerate(files, 1)
    for number in [step for step, file in steps if file in BETWEEN or step % 389 == 0]:
        interrupted_at(number)
        assert (number, changed(before), is_active()) == (number, [], False)
    with virtual_gpus(1):
        assert torch.ones(1, device="cuda").is_cuda


def test_ctrl_c_is_raised_when_everything_is_in_its_place():
    done = []

    def goes_on():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        goes_on()
    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
