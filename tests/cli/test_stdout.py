"""Stdout that cannot be written: a real pipe, a full disk, a closed stream."""

import os
import sys
from pathlib import Path

import pytest
from processes import needs_no_gpu, run

from dpdemo.cli.edge import READER_LEFT

ROOT = Path(__file__).parent.parent.parent
LONG = "simulate --gpus 8 --verbose --data-size 1000000"


def bash(command, cwd=ROOT):
    """Run a line of bash in which a failure anywhere in a pipe counts, with stdout buffered as for users."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return run(["bash", "-o", "pipefail", "-c", command], cwd=cwd, env={**env, "PATH": path})


@pytest.mark.parametrize("form", ["table", "transcript", "json", "csv", "markdown"])
def test_reader_that_leaves_early_gives_141(form):
    done = bash(f"dpdemo {LONG} --format {form} | head -3")
    assert (done.returncode, done.stderr) == (READER_LEFT, "")
    assert len(done.stdout.splitlines()) == 3


def test_141_is_the_code_of_sigpipe():
    assert bash("yes | head -1").returncode == READER_LEFT


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",
        "simulate --help",
        "simulate --gpus 8",
        "simulate --gpus 8 --format json",
        "simulate --gpus 8 --batch-size 10 --fail-on idle --format csv",
        "check --list",
        pytest.param("explain --virtual --gpus 0,1,2", marks=needs_no_gpu),
    ],
)
def test_reader_that_reads_nothing_gives_141(command):
    """Short outputs lie in Python's buffer until the end, where it would complain of the pipe itself."""
    done = bash(f"dpdemo {command} | true")
    assert (done.returncode, done.stderr) == (READER_LEFT, "")


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("command", [LONG, "simulate --gpus 8"])
def test_a_full_disk_is_an_error_in_words(command, form):
    done = bash(f"dpdemo {command} --format {form} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: could not write to stdout: No space left on device\n"


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_not_an_error(tmp_path, closed, form):
    done = bash(f"dpdemo simulate --format {form} --save r.json {closed}", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert (tmp_path / "r.json").stat().st_size


@needs_no_gpu
def test_a_program_of_exec_ends_as_it_would_under_python(tmp_path):
    (tmp_path / "program.py").write_text(
        "import select\npoll = select.poll()\npoll.register(1, 0)\n"
        "poll.poll(60_000)  # until the reader is gone\nprint('hello')"
    )
    ends = [bash(f"{how} program.py | true", tmp_path) for how in ("python", "dpdemo exec -q --gpus 2")]
    assert len({done.returncode for done in ends}) == 1
    assert ends[0].stderr == ends[1].stderr != ""


@pytest.mark.parametrize("form", ["table", "json"])
def test_read_only_stdout_is_an_error(form):
    done = bash(f"dpdemo simulate --gpus 8 --format {form} 1</dev/null")
    assert done.returncode == 1
    assert done.stderr == "error: could not write to stdout: Bad file descriptor\n"


@pytest.mark.parametrize("columns", ["0", "-1", "x", "9" * 5000, "²"])
def test_nonsense_columns_are_ignored(columns):
    done = bash(f"COLUMNS={columns} dpdemo simulate --gpus 2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "In Model: input" in done.stdout


def test_every_file_is_saved_though_the_reader_leaves(tmp_path):
    done = bash("dpdemo simulate --gpus 2 -q --save r.md --save r.svg --save r.json | true", tmp_path)
    assert done.returncode == READER_LEFT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.md", "r.svg"]


@pytest.mark.parametrize(
    "command", ["simulate --save own.md", "run --virtual --save other.md --save ./own.md"]
)
def test_config_is_never_overwritten(tmp_path, command):
    name = command.split()[-1]
    (tmp_path / name).write_text("batch_size: 64")
    done = bash(f"dpdemo {command} --config {name}", tmp_path)
    assert done.returncode == 2
    assert "expected another file than the config that is read" in done.stderr
    assert [path.read_text() for path in tmp_path.iterdir()] == ["batch_size: 64"]


@needs_no_gpu
def test_an_ascii_stdout_takes_a_model_of_any_name(tmp_path):
    (tmp_path / "grün.py").write_text("from torch import nn\nclass Größe(nn.Linear):\n"
                                     "    def __init__(self): super().__init__(4, 2)\n")  # fmt: skip
    done = bash("PYTHONIOENCODING=ascii dpdemo check grün.py:Größe --input 8x4", tmp_path)
    assert done.returncode == 0
    assert r"Gr\xf6\xdfe on 4 virtual GPUs" in done.stdout
