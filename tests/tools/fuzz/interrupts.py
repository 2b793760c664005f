"""Press Ctrl-C at random moments of random commands: each ends with 130 and leaves nothing behind.

    python tests/tools/fuzz/interrupts.py --seconds 300 --seed 7

What must not be left: a traceback, a partial or temporary file, a replaced function of torch, a process. Each
command runs in a forked process; the moment is drawn from the time that it takes when it is left alone.
"""

import atexit
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from pathlib import Path

from commandline import Sink, furnish, prepared
from hunting import hunt

COMMANDS = (
    "run --virtual --gpus 3 --save r.json",
    "run --virtual --gpus 2 --model cnn --set input_size=8 --save r.json",
    "explain --virtual --gpus 3 --save r.json",
    "check own.py:Net --gpus 2 --input 8x5 --save r.json",
    "memory own.py:Net --gpus 2 --input 8x5 --save r.json",
    "speedup own.py:Net --gpus 2 --input 8x5 --link pcie4 --save r.json",
    "doctor --gpus 2 --input 8x5 --save r.json own.py:Net",
    "exec --gpus 2 --check --report r.json script.py",
    "simulate --gpus 8 --save r.json",
    "page --save r.html",
)
WHAT = "interrupts"
ENDED = {0, 1, 130}
"""1 is a check that found something before Ctrl-C came."""
_KINDS = {types.BuiltinFunctionType, property, staticmethod, classmethod, type}
_CLASSES = ("Tensor", "nn.Module", "nn.DataParallel", "Generator", "autograd.Function")


def replaceable():
    """Return what virtual GPUs and watchers replace: functions and their code."""
    found = {}
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "torch"]
    modules = [module for module in modules if type(module) is types.ModuleType]  # others warn when looked at
    owners = [*modules, threading.Thread, threading, *(_class(name) for name in _CLASSES)]
    for owner in owners:
        for name, value in list(vars(owner).items()):
            if type(value) is types.FunctionType:
                found[owner, name] = (value, value.__code__)
            elif type(value) in _KINDS:
                found[owner, name] = (value, None)
    return found


def _class(name):
    found = sys.modules["torch"]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def left_behind(before):
    """Report what has not been restored."""
    after = replaceable()
    changed = [f"{owner.__name__}.{name}" for owner, name in before if _differs(before, after, (owner, name))]
    files = [path.name for path in Path().iterdir() if path.name.endswith((".tmp", ".unfinished"))]
    for path in Path().glob("r.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            files.append(path.name)
    return [*changed, *files]


def _differs(before, after, key):
    return key not in after or any(
        item is not other for item, other in zip(before[key], after[key], strict=True)
    )


def ended(line, ready):
    """Run a command in this process and say what is wrong with how it ended; "" if nothing is."""
    from dpdemo.cli import main

    before = replaceable()
    out, err = Sink(), Sink()
    sys.argv, sys.stdout, sys.stderr = ["dpdemo", *line.split()], out.opened(), err.opened()
    code = 0
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            ready()
            main()
        except SystemExit as stop:
            code = stop.code or 0
        except KeyboardInterrupt as error:
            is_ours = any(frame.name == "_run" for frame in traceback.extract_tb(error.__traceback__))
            code = "a KeyboardInterrupt" if is_ours else 130
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:  # the only one that is sent came when the command was over
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if line.startswith("exec"):
        atexit._run_exitfuncs()
    left = left_behind(before)
    said = err.text()
    # what comes while a `__del__` runs, Python passes over and says so
    is_quiet = "Traceback" not in said or "Exception ignored in" in said or line.startswith("exec")
    if code in ENDED and not left and is_quiet:
        return ""
    return f"exit code {code}, left {left}, stderr {said[-1500:]}"


def interrupted(line, delay):
    """Run a command in a fork, press Ctrl-C after some seconds (None: never), and say what went wrong."""
    reading, writing = os.pipe()
    waiting, starting = os.pipe()
    with tempfile.TemporaryDirectory() as name:
        child = os.fork()
        if child == 0:
            _be_interrupted(line, Path(name), starting, writing)
        os.close(writing)
        os.read(waiting, 1)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGINT)
        with os.fdopen(reading, "rb") as pipe:
            fault = pipe.read().decode(errors="replace")
        _, status = os.waitpid(child, 0)
        orphans = _group_lives(child)
    os.close(waiting)
    os.close(starting)
    how = os.waitstatus_to_exitcode(status)
    if orphans:
        return f"a process is left; {fault}"
    return fault if how in {0, 130} else f"the process died: {how}"  # 130: while torch was imported


def _be_interrupted(line, folder, starting, writing):
    """Be the fork: whatever happens, it ends here."""
    fault = "it did not begin"
    try:
        furnish(folder)
        os.chdir(folder)
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.alarm(300)
        fault = ended(line, lambda: os.write(starting, b"!"))
    except BaseException:
        fault = traceback.format_exc()
    finally:
        os.write(writing, fault.encode(errors="replace")[-4000:])
        os._exit(0)


def _group_lives(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def runs(seed, seconds, most=None):
    """Yield (number, command, delay, fault) until the time is over, or there were `most`."""
    prepared()
    importlib.import_module("torch._dynamo")  # which replaces torch.manual_seed for good
    took = {}
    end = time.monotonic() + seconds
    number = 0
    draw = random.Random(seed)  # noqa: S311 - it is to be repeatable
    while time.monotonic() < end and (most is None or number < most):
        line = draw.choice(COMMANDS)
        if line not in took:
            began = time.monotonic()
            fault = interrupted(line, None)
            took[line] = time.monotonic() - began
            if fault:
                yield number, line, None, fault
        delay = draw.random() * took[line]
        yield number, line, delay, interrupted(line, delay)
        number += 1


if __name__ == "__main__":
    hunt(__doc__, WHAT, runs, lambda line, delay: f"dpdemo {line}, Ctrl-C after {delay} s", options=("most",))
