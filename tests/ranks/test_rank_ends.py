"""However a rank ends, or cannot note what it does: the others are stopped, and no process is left."""

import signal
import socket
import subprocess
import sys

import pytest
from ddpruns import processes_of
from processes import PATIENCE_SECONDS, wait_for

from dpdemo.errors import RunError
from dpdemo.ranks import launch

_PROGRAM = """
import os, resource, signal, sys, time
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)

def fill_the_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

for step in range(30):
    if step == 5 and rank == 1:
        {trouble}
    dist.all_reduce(torch.ones(3, device="cuda"))
{after}
dist.destroy_process_group()
"""


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    wait_for(lambda: not processes_of(tmp_path))  # no orphan


def start(folder, trouble, after=""):
    program = folder / "train.py"
    program.write_text(_PROGRAM.format(trouble=trouble, after=after), "utf-8")
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", str(program)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        ("os.abort()", 134, "rank 1 was ended by SIGABRT; all ranks were stopped"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "rank 1 was ended by SIGSEGV"),
        ("os._exit(3)", 3, "rank 1 failed with exit code 3"),
        ("os._exit(0)", 1, "rank 0 waits for rank 1, which has ended"),
        ("raise ValueError('a bad row')", 1, "rank 1 failed: ValueError: a bad row at "),
        ("fill_the_disk(); raise ValueError('a bad row')", 1, "rank 1 failed: ValueError: a bad row at "),
    ],
)
def test_the_others_are_stopped(folder, trouble, code, words):
    process = start(folder, trouble)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, err
    assert words in err


@pytest.mark.slow
def test_a_full_disk_ends_the_notes_and_not_the_program(folder):
    """Rank 0 notes collectives that rank 1 cannot note any more, and waits for it: nothing is wrong."""
    process = start(folder, "fill_the_disk()", "time.sleep(3 * rank)\ndist.barrier()")
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    assert "wait" not in err
    assert "not in the same collective" not in err


@pytest.mark.slow
def test_ctrl_c_names_where_each_rank_was(folder):
    process = start(folder, "open('blocked', 'w').close(); time.sleep(600)")
    wait_for((folder / "blocked").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "SIGINT: all ranks were stopped" in err
    assert "rank 0: all_reduce #6 of [3] float32 at " in err


def test_ranks_meet_on_a_port_that_no_one_holds(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", launch.free_port()))
        taken.listen()
        held, other = taken.getsockname()[1], launch.free_port()
        monkeypatch.setattr(launch, "PORTS", [held, other])
        assert launch.free_port() == other
        monkeypatch.setattr(launch, "PORTS", [held])
        with pytest.raises(RunError, match="expected a free port, got 1 in use"):
            launch.free_port()
