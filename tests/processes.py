"""Programs that a test starts: each gets the same time before it counts as hung; tests without real GPUs."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="real GPUs are visible on this machine")
ROOT = str(Path(__file__).parent.parent)
PATIENCE_SECONDS = 900
"""It only ends a hang: on a machine with many times the work it has cores for, a command takes minutes."""


def run(command, *, check=False, **options):
    """Run a program to its end and give what it did; its output as text, unless `options` say otherwise."""
    given = {"capture_output": True, "text": True, "timeout": PATIENCE_SECONDS, **options}
    done = subprocess.run(command, check=False, **given)
    assert not check or done.returncode == 0, done.stderr
    return done


def loaded_by(*words):
    """Run a command; return its exit code, and those of torch, rich and another command that it loaded."""
    code = f"""
import sys
sys.argv = ["dpdemo", *{words!r}]
from dpdemo.cli import main
try:
    main()
except SystemExit as stop:
    print()
    print(stop.code, *sorted({{"torch", "rich", "dpdemo.cli.run"}} & set(sys.modules)))
"""
    return run([sys.executable, "-c", code], check=True).stdout.splitlines()[-1].split()


def wait_for(what):
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.05)
    raise TimeoutError(f"{what} after {PATIENCE_SECONDS} s")


def on_a_terminal(*args, interrupt_after=None):
    """Run dpdemo on a pseudo-terminal; give its exit code and all that it showed."""
    master, slave = pty.openpty()
    child = subprocess.Popen([sys.executable, "-m", "dpdemo", *args], stdout=slave, stderr=slave, stdin=slave)
    os.close(slave)
    shown = b""
    interrupted = interrupt_after is None
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
        if not interrupted and interrupt_after in shown:
            child.send_signal(signal.SIGINT)
            interrupted = True
    os.close(master)
    return child.wait(PATIENCE_SECONDS), shown.decode()


def interrupted(text, *arguments, cwd=None):
    """Start Python, send it Ctrl-C once it wrote `text` to stderr; give its exit code, stdout and stderr."""
    child = subprocess.Popen(
        [sys.executable, *arguments], cwd=cwd, env={**os.environ, "PYTHONPATH": ROOT}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    first = child.stderr.readline()
    assert text in first, first
    child.send_signal(signal.SIGINT)
    try:
        out, err = child.communicate(timeout=PATIENCE_SECONDS)
    finally:
        child.kill()  # nothing else ends it if it ignored the signal
    return child.returncode, out, err
