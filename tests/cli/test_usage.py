"""Bad usage: exit code 2, a message on stderr with expected, got, where; nothing on stdout; no traceback."""

import pytest


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["simulate", ""], "argument GPUS"),
        (["simulate", "4", "--fail-on", ""], "option `--fail-on`"),
        (["simulate", "4", "--lengths", "x", "--pad-to", ""], "option `--pad-to`"),
        (["check", "linear", "--select", ""], "option `--select`"),
        (["check", "linear", "--gpus", ""], "option `--gpus`"),
        (["memory", "", "--gpus", "2"], "argument TARGET"),
        (["speedup", "linear", "--loss", ""], "option `--loss`"),
        (["doctor", "linear", "--link", ""], "option `--link`"),
    ],
)
def test_an_empty_value_is_not_taken_for_a_default(dpdemo, words, named):
    done = dpdemo(*words)
    assert (done.code, done.out) == (2, "")
    assert f"expected a value, got an empty one - at {named}" in done.err


def test_no_command_at_all_shows_the_help(dpdemo):
    done = dpdemo()
    assert done.code == 2
    assert "simulate" in done.out + done.err


def test_more_memory_than_there_is_is_an_error_and_no_traceback(dpdemo):
    done = dpdemo("run", "--batch-size", 10**15, "--data-size", 10**15)
    assert done.code == 1
    assert "memory" in done.err
    assert "Traceback" not in done.err
