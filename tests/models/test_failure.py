"""Taking exceptions of the user's code apart."""

import pytest
import torch
from torch._utils import ExceptionWrapper

from dpdemo.errors import RunError
from dpdemo.models.failure import memory_told, take_apart


class ScoreError(Exception):
    """A user's own exception type."""


def fail(error):
    raise error


def caught(error):
    with pytest.raises(type(error)) as info:
        fail(error)
    return info.value


def in_replica(error, replica, device):
    """Raise an exception the way parallel_apply does: wrapped where it happened, raised again outside."""
    try:
        fail(error)
    except Exception:
        wrapper = ExceptionWrapper(where=f"in replica {replica} on device {device}")
    try:
        wrapper.reraise()
    except Exception as again:
        return again


def test_a_plain_exception_has_no_replica():
    failure = take_apart(caught(ValueError("too short")))
    assert (failure.type, failure.message, failure.replica) == ("ValueError", "too short", None)


def test_a_plain_exception_shows_the_users_frames():
    failure = take_apart(caught(ValueError("too short")))
    assert any("test_failure.py" in frame and "in fail" in frame for frame in failure.frames)


@pytest.mark.parametrize(
    "error", [ValueError("too short"), RuntimeError("a\nmessage\nof lines"), KeyError("k"), ScoreError("bad")]
)
def test_an_exception_of_a_replica_names_replica_device_and_frames(error):
    failure = take_apart(in_replica(error, 3, 1))
    assert failure.type == type(error).__name__
    assert (failure.replica, failure.device) == (3, "1")
    assert failure.message.splitlines()[0].strip("'\"") == str(error).splitlines()[0].strip("'")
    assert failure.message.count("\n") == str(error).count("\n")
    assert any("in fail" in frame for frame in failure.frames)


def test_frames_of_torch_and_dpdemo_are_left_out():
    import torch

    with pytest.raises(RuntimeError) as info:
        torch.nn.Linear(2, 3)(torch.ones(1, 5))
    assert all("/torch/" not in frame for frame in take_apart(info.value).frames)


def test_an_exception_without_a_message_says_so():
    assert take_apart(caught(RuntimeError())).message == "(no message)"
    assert take_apart(in_replica(RuntimeError(), 0, 0)).message == "(no message)"


def test_the_text_reads_type_replica_message_frames():
    text = str(take_apart(in_replica(ValueError("too short"), 2, 2)))
    assert text.startswith("ValueError in replica 2 on device 2: too short\n  ")


class TestOutOfMemory:
    """Running out of memory is reported, whoever raises it."""

    @pytest.mark.parametrize(
        "allocate",
        [lambda: torch.empty(2**60), lambda: torch.empty(2**62, 2**62), lambda: bytearray(2**62)],
        ids=["PyTorch's CPU allocator", "a size that no number holds", "Python"],
    )
    def test_it_is_an_error_with_a_hint(self, allocate):
        with (
            pytest.raises(RunError, match=r"^expected enough memory to try it, got") as caught,
            memory_told("try it"),
        ):
            allocate()
        assert "smaller sizes" in caught.value.hint

    def test_other_errors_are_let_through(self):
        with pytest.raises(RuntimeError, match="something else"), memory_told("try it"):
            raise RuntimeError("something else")
