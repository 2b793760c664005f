"""`dpdemo run` on the CPU."""

import gc
import io
import json
import signal
import sys

import pytest
from processes import interrupted, needs_no_gpu, on_a_terminal
from rich.console import Console

from dpdemo.cli.startup import loading_torch, progress_bar, users_code


@needs_no_gpu
def test_on_a_cpu_a_hint_names_simulate(dpdemo):
    assert "dpdemo simulate --gpus 8" in dpdemo("run").err
    assert dpdemo("run", "-q").err == ""


@needs_no_gpu
@pytest.mark.parametrize("command", ["run", "explain"])
def test_invisible_gpu_exits_with_2(dpdemo, command):
    done = dpdemo(command, "--gpus", "0,1,2")
    assert (done.code, done.out) == (2, "")
    assert "got cuda:0, cuda:1, cuda:2, with none visible here" in done.err
    assert "dpdemo simulate" in done.err


def test_ctrl_c_shows_the_batches_done_so_far_and_exits_130():
    code, shown = on_a_terminal("run", "--data-size", str(10**12), interrupt_after=b"batches")
    assert code == 130
    assert "interrupted" in shown
    assert "Outside" in shown
    assert "Traceback" not in shown


def test_a_short_run_shows_no_progress_bar():
    code, shown = on_a_terminal("run")
    assert code == 0
    assert "━" not in shown.partition("Outside")[0]


SAYS_WHEN = """
import sys
from torch import nn

class SaysWhen(nn.Linear):
    def __init__(self):
        super().__init__(5, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3:
            print("third batch", file=sys.stderr, flush=True)
        return super().forward(x)
"""


def test_interrupted_run_is_partial_in_json(tmp_path):
    (tmp_path / "says_when.py").write_text(SAYS_WHEN)
    options = ["--model", "says_when:SaysWhen", "--data-size", str(10**12), "-f", "json"]
    code, out, err = interrupted("third batch", "-m", "dpdemo", "run", *options, cwd=tmp_path)
    report = json.loads(out)
    assert code == 130
    assert report["partial"] is True
    assert 2 <= report["totals"]["batches"] < 10**12 / 30
    assert "interrupted" in err


def test_ctrl_c_while_torch_is_loading_ends_the_program_at_once():
    swallows = """
import sys, time
from dpdemo.cli.startup import loading_torch
with loading_torch():
    try:
        print("loading", file=sys.stderr, flush=True)
        time.sleep(60)
    except KeyboardInterrupt:  # as some import of torch's does
        time.sleep(60)
"""
    code, _, err = interrupted("loading", "-c", swallows)
    assert (code, err) == (130, "")


def test_loading_torch_puts_the_collector_and_the_signal_back():
    before = signal.getsignal(signal.SIGINT)
    with loading_torch():
        assert not gc.isenabled()
        assert signal.getsignal(signal.SIGINT) is not before
    assert gc.isenabled()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("opened", "update"),
    [
        (lambda: users_code(quiet=False, doing="checking"), lambda show: show("a model")),
        (lambda: progress_bar(quiet=False), lambda show: show(3, 10)),
    ],
)
@pytest.mark.parametrize("moment", ["set_live", "push_render_hook", "clear_live", "pop_render_hook"])
def test_ctrl_c_while_progress_starts_or_stops_leaves_the_terminal_as_it_was(
    monkeypatch, opened, update, moment
):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    genuine = getattr(Console, moment)

    def interrupted(*given):
        monkeypatch.setattr(Console, moment, genuine)
        signal.raise_signal(signal.SIGINT)
        return genuine(*given)

    monkeypatch.setattr(Console, moment, interrupted)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with pytest.raises(KeyboardInterrupt), opened() as show:
        update(show)
    shown = terminal.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor is hidden, and is back
