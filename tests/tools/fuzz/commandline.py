"""Throw random command lines at dpdemo: each ends with an exit code of its own and no traceback.

    python tests/tools/fuzz/commandline.py --seconds 300 --seed 7

Each runs in a forked process, with bounded memory and time, in a folder with a few files. The seed
is printed; with the same seed and number the same line is run again: --seed 7 --only 123.
"""

import gc
import io
import os
import random
import resource
import shlex
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hunting import hunt

MEMORY_BYTES = 12 << 30  # of addresses: torch alone maps some
PATIENCE_SECONDS = 600  # it ends a hang and measures nothing
WHAT = "command lines"
BUNDLE = 10
MOST_OUTPUT = 1 << 20
EXIT_CODES = {0, 1, 2, 3, 141}

FILES = {
    "own.py": "import torch\nfrom torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n"
    "        super().__init__(5, 2)\n\n\ndef fails():\n"
    "    raise ValueError('no\\x1b[31m weights\\n::error::x')\n\n\n"
    "def inputs(rows):\n    return torch.zeros(rows, 5)\n",
    "quits.py": "import sys\n\nsys.exit(0)\n",
    "script.py": "import torch\nfrom torch import nn\nmodel = nn.DataParallel(nn.Linear(5, 2).cuda())\n"
    "print(model(torch.zeros(7, 5)).shape)\n",
    "good.yaml": "batch_size: 8\ngpus: [0, 1]\n",
    "bad.yaml": "batch_size: [\n",
    "odd.yaml": "gpus: 0x1F\nmodel: 'li\\e[31mnear'\nbatch_size: 1e400\n",
    "recording.json": '{"schema": "dpdemo.recording/1"}',
    "binary.bin": "\udcff\udc80",
}
WORDS = (
    "", " ", "-", "--", "0", "1", "2", "3", "-1", "7", "0,1", "0,", "3,", "0-2", "2-0", "1,1", "all", "128",
    "200", "0,200", "128", "99999999999999999999", "9" * 400, "9" * 5000, "1e3", "1e400", "nan",
    "inf", "0x10", "٣", "³", "x", "\x1b[31m", "a\nb", "ü", "\U0001f600", "'", '"""', "{a}", "$(x)",
    "::error::", "<script>", "|", "null", "true", "[0]", "own.py", "own.py:Net", "own:Net", "own.Net",
    "own:fails", "own.py:none", "own:inputs", "quits.py", "quits:x", "linear", "cnn", "rnn", "hybrid",
    "partial", "transformer", "liner", "good.yaml", "bad.yaml", "odd.yaml", "none.yaml", "recording.json",
    "script.py", "binary.bin", ".", "/", "/dev/null", "no/such/r.json", "r.json", "r.svg", "r.html", "r.md",
    "r.csv", "r.txt", "a{b}.py", "24GiB", "24GB", "24", "1MiB,2MiB", "-5GiB", "0GiB", "1e30TiB", "8x5",
    "8,5", "x=8x5:int64<10", "8x5:int64<0", "8x5:foo", "0x5", "99999999x99999999", "8x5:int64<" + "9" * 30,
    "DP3", "DP301", "lost-state", "dp", "DDP", "ddp", "table", "JSON", "json", "csv", "markdown", "sarif",
    "github", "adamw", "Adam", "mean", "cross-entropy", "own:fails", "float16", "idle",
    "uneven,lone-sample", "per-rank",
)  # fmt: skip


def options_of(name):
    """The options of a command, as its parser has them: (spellings, whether a value follows)."""
    import typer

    from dpdemo.cli.app import build

    command = typer.main.get_command(build([name])).get_command(None, name)
    return [
        (spelling, not parameter.is_flag)
        for parameter in command.params
        if parameter.param_type_name == "option"
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    ]


FITTING = {
    "--gpus": ("2", "3", "0,1", "0,2", "1-3", "2,4,8", "1-4:2"),
    "--model": ("linear", "cnn", "rnn", "hybrid", "partial", "transformer", "own.py:Net", "own.py"),
    "--config": ("good.yaml", "good.yaml", "odd.yaml", "folder"),
    "--input": ("8x5", "8x5:int64<10", "x=8x5:bool", "0x5", "8"),
    "--inputs": ("own:inputs", "own:fails", "38MB"),
    "--batch-size": ("8", "7", "1", "1-64:x2", "16-32:8"),
    "--data-size": ("8", "20", "21"),
    "--strategy": ("dp", "ddp"),
    "--set": (
        "input_size=8",
        "seed=7",
        "dtype=float64",
        "dim=1",
        "output_device=1",
        "trace_sample=7",
        "processes=2",
        "x",
    ),
    "--gpu-memory": ("24GiB", "1MiB", "1MiB,2MiB", "64KiB"),
    "--gpu": ("A100-80GB", "T4", "rtx 3090"),
    "--reserve": ("0", "1GiB"),
    "--seq-len": ("8", "1"),
    "--image-size": ("32", "1"),
    "--link": ("pcie4", "nvlink3", "no-p2p"),
    "--bandwidth": ("20GB/s", "1MB/s", "1000TB/s"),
    "--of": ("balance", "weight", "idle"),
    "--near": ("24", "1"),
    "--loss": ("mean", "cross-entropy", "mse", "own:fails"),
    "--optimizer": ("adamw", "sgd"),
    "--save": ("r.json", "r.svg", "r.html", "r.md", "r.csv", "r.txt", "fifo", "folder"),
    "--report": ("r.json", "r.txt"),
    "--traceback": ("own.py", "binary.bin", "folder"),
    "--explain": ("DP301",),
    "--select": ("DP3", "DP301,DP4"),
    "--timeout": ("5", "60"),
}
"""Values that an option means something by: half of the time one of these is drawn."""
TARGETS = (
    "own.py:Net",
    "own.py",
    "own:Net",
    "linear",
    "cnn",
    "rnn",
    "hybrid",
    "partial",
    "quits.py",
    "gone:x",
)
ARGUMENTS = {
    "check": TARGETS,
    "memory": TARGETS,
    "speedup": TARGETS,
    "doctor": (*TARGETS, "script.py"),
    "init": ("folder", "fifo"),
    "exec": ("script.py",),
}
DEAR = {"doctor": 0.4, "exec": 0.4, "check": 0.6}
"""Share of drawn long-running commands that are kept."""


def value_of(draw, option):
    """Draw a value for an option: one that fits it, or anything."""
    return draw.choice(FITTING[option] if option in FITTING and draw.random() < 0.6 else WORDS)


def name_of(draw, options):
    """Draw a command."""
    name = draw.choice(list(options))
    return name if draw.random() < DEAR.get(name, 1) else name_of(draw, options)


def command_line(draw, options):
    """Draw a command line: mostly real options, with values that fit them now and then."""
    name = name_of(draw, options)
    words = [draw.choice(WORDS) for _ in range(draw.choice([0, 0, 0, 0, 1, 2]))]
    if name in ARGUMENTS and draw.random() < 0.8:
        words = [draw.choice(ARGUMENTS[name]), *words]
    if name == "exec":
        words = ["script.py", *words]
    before = []
    for spelling, takes_value in draw.sample(
        options[name], min(len(options[name]), draw.choice([0, 1, 2, 3, 4]))
    ):
        before.append(spelling)
        if takes_value:
            before.append(value_of(draw, spelling))
    known = dict(options[name])
    if "--virtual" in known and draw.random() < 0.7:
        before.append("--virtual")
    if "--gpus" in known and draw.random() < 0.6:
        before += ["--gpus", draw.choice(["2", "3", "0,1"])]
    if name in {"check", "doctor", "memory"} and draw.random() < 0.7:
        before += ["--input", "8x5"]
    line = [*before, *words] if name == "exec" or draw.random() < 0.5 else [*words, *before]
    return [name, *line]


class Sink(io.RawIOBase):
    """A reader of output: it keeps a bounded part, then leaves as `head` does."""

    def __init__(self):
        self.bytes = bytearray()

    def writable(self):
        return True

    def write(self, data):
        self.bytes += data
        if len(self.bytes) > MOST_OUTPUT:
            raise BrokenPipeError
        return len(data)

    def fileno(self):
        return 1

    def opened(self):
        """Open it as Python opens stdout."""
        return io.TextIOWrapper(io.BufferedWriter(self), encoding="utf-8", write_through=True)

    def text(self):
        return self.bytes.decode(errors="replace")


def fault_of(line):
    """Run a command line in this process and say what is wrong with how it ended; "" if nothing is."""
    from dpdemo.cli import main

    out, err = Sink(), Sink()
    sys.argv, sys.stdout, sys.stderr = ["dpdemo", *line], out.opened(), err.opened()
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        return traceback.format_exc()
    said = err.text()
    if code not in EXIT_CODES:
        return f"exit code {code}"
    if "Traceback (most recent call last):" in said and line[0] != "exec":
        return said
    if "\x1b" in said or (code == 2 and out.text()) or (code and not said and not out.text() and code != 141):
        return f"exit code {code}, stdout {out.text()[:200]!r}, stderr {said[:500]!r}"
    return ""


def in_a_fork(lines):
    """Run command lines one by one in a forked process, with bounds; return what is wrong with each."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _be_fork(lines, writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        faults = pipe.read().decode(errors="surrogateescape").split("\0")[:-1]
    _, status = os.waitpid(child, 0)
    is_whole = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 and len(faults) == len(lines)
    return faults if is_whole else [*faults, f"the process died: status {status}"]


def _be_fork(lines, writing):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.alarm(PATIENCE_SECONDS)
    main = sys.modules["__main__"]
    for line in lines:
        with tempfile.TemporaryDirectory() as name:
            furnish(Path(name))
            os.chdir(name)
            fault = fault_of(line)
            os.chdir("/")
        sys.modules["__main__"] = main  # which the program of `exec` has taken
        os.write(writing, fault.encode(errors="surrogateescape")[-4000:] + b"\0")


def furnish(folder):
    """Put files into a folder: good ones, bad ones, and things that are not files."""
    for file, text in FILES.items():
        (folder / file).write_bytes(text.encode(errors="surrogateescape"))
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")


def prepared():
    """Import all that commands import, once for all forks, and list each command's options."""
    import importlib
    import pkgutil

    import torch

    import dpdemo
    from dpdemo.cli import app

    for module in pkgutil.walk_packages(dpdemo.__path__, "dpdemo."):
        if not module.name.endswith(("__main__", "pytest_plugin")):
            importlib.import_module(module.name)
    torch.set_num_threads(1)  # a fork has no threads but its own
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["OMP_NUM_THREADS"] = "1"
    gc.freeze()
    return {name: options_of(name) for name in app.COMMANDS}


def runs(seed, seconds, only=None, most=None):
    """Yield (number, command line, fault) of drawn command lines until time is over, or there were `most`.

    Several run in one fork, one after the other; of a fork with a fault each line is run again alone.
    """
    options = prepared()
    end = time.monotonic() + seconds
    start = 0 if only is None else only
    while (only is None or start == only) and time.monotonic() < end and (most is None or start < most):
        numbers = range(start, start + (BUNDLE if only is None else 1))
        lines = [command_line(random.Random(f"{seed}/{number}"), options) for number in numbers]  # noqa: S311
        faults = in_a_fork(lines)
        if len(faults) < len(lines) or any(faults):
            faults = [in_a_fork([line])[0] for line in lines]
        yield from zip(numbers, lines, faults, strict=True)
        start = numbers.stop


def shown(line):
    short = [word if len(word) < 60 else f"{word[:20]}…({len(word)})" for word in line]
    return f"dpdemo {shlex.join(short)!a}"


if __name__ == "__main__":
    hunt(__doc__, WHAT, runs, shown, options=("only", "most"))
