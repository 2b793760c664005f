"""Whose frames a traceback shows."""

import traceback

import pytest
import torch

from dpdemo.models.frames import OURS, hide_ours, is_our_bug, without_ours
from dpdemo.virtual import virtual_gpus


def raised(code, filename):
    """Return the error of code that stands in a file."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each test raises its own
        exec(compile(code, filename, "exec"), {})  # noqa: S102 - code of the tests
    return caught.value


@pytest.mark.parametrize(
    ("code", "filename", "is_bug"),
    [
        ("{}['moved']", OURS + "virtual/ops/mode.py", True),
        ("None.moved", OURS + "ranks/watch.py", True),
        ("raise RuntimeError('sizes differ')", OURS + "virtual/ops/mode.py", False),
        ("{}['moved']", "train.py", False),
        ("{}['moved']", OURS + "examples/ddp.py", False),
    ],
)
def test_a_mistake_in_our_own_code_is_told_from_a_programs_error(code, filename, is_bug):
    assert is_our_bug(raised(code, filename)) is is_bug


def test_the_traceback_of_an_operator_ends_at_the_users_line():
    with virtual_gpus(1), pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3, device="cuda") @ torch.ones(2, device="cuda")
    text = "".join(traceback.format_exception(caught.value))
    assert OURS in text
    assert OURS not in without_ours(text)
    assert text.splitlines()[-1] == without_ours(text).splitlines()[-1]


def test_a_traceback_in_a_message_loses_our_frames_alone():
    frame = f'  File "{OURS}virtual/ops/mode.py", line 1, in act\n    run()\n    ^^^^^\n'
    error = RuntimeError(
        f'Original Traceback:\n  File "train.py", line 1, in run\n    x()\n{frame}Error: no', 2
    )
    hide_ours(error)
    assert error.args == ('Original Traceback:\n  File "train.py", line 1, in run\n    x()\nError: no', 2)
