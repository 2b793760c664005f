"""Ranks that a program starts by itself inside `dpdemo exec --gpus N`: reported, and their mistakes named."""

import itertools
import json
import os
import subprocess
import sys
import threading

import pytest
from ddpruns import processes_of
from processes import wait_for

_TRAIN = """
import os, sys
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def main(rank, size, way):
    if way == "never joins" and rank == 1:
        return
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_device_mesh("cuda", (size,))  # which makes the group itself
    else:
        store = "file://" + os.path.abspath("store")
        dist.init_process_group("nccl", rank=rank, world_size=size, init_method=store)
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(7, 4), torch.arange(7) % 3)
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(nn.Linear(4, 3).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        if way != "forgotten":
            sampler.set_epoch(epoch)
        for rows, targets in DataLoader(data, 2, sampler=sampler):
            optimizer.zero_grad()
            F.cross_entropy(model(rows.cuda()), targets.cuda()).backward()
            optimizer.step()
    if way == "raises once" and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        way = "right"
    if way.startswith("raises") and rank == 1:
        raise ValueError("a bad row")
    if way == "hangs" and rank == 1:
        dist.barrier()
    dist.all_reduce(torch.ones(3, device="cuda"))
    print("done")
    dist.destroy_process_group()
"""
_STARTS = {
    "mp.spawn": """
import sys, train, torch.multiprocessing as mp
if __name__ == "__main__":
    mp.spawn(train.main, (2, sys.argv[1]), nprocs=2)
""",
    "fork": """
import sys, train, multiprocessing
if __name__ == "__main__":
    start = multiprocessing.get_context("fork").Process
    ranks = [start(target=train.main, args=(rank, 2, sys.argv[1])) for rank in range(2)]
    [rank.start() for rank in ranks]
    [rank.join() for rank in ranks]
    sys.exit(any(rank.exitcode for rank in ranks))
""",
    "itself and a subprocess": """
import os, subprocess, sys, train
if __name__ == "__main__":
    number = int(os.environ.get("LOCAL_RANK", "0"))
    other = None
    if "LOCAL_RANK" not in os.environ:
        other = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "LOCAL_RANK": "1"})
    train.main(number, 2, sys.argv[1])
    sys.exit(0 if other is None else other.wait())
""",
    "torchrun": """
import os, sys, train
train.main(int(os.environ["RANK"]), 2, sys.argv[1])
""",
}
_TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]


def start(folder, how, way):
    """Run the program inside `dpdemo exec`, and return its outcome and the one world of ranks reported."""
    result, (world,) = run(folder, how, way, _TORCHRUN)
    return result, world


def run(folder, how, way, torchrun):
    """Run the program inside `dpdemo exec`, and return its outcome and the worlds of ranks reported."""
    (folder / "train.py").write_text(_TRAIN, "utf-8")
    (folder / "start.py").write_text(_STARTS[how.removesuffix(" outside")], "utf-8")
    exec_ = ["-m", "dpdemo", "exec", "--gpus", "2", "--report", "report.json"]
    options = {"torchrun": [*exec_, *torchrun], "torchrun outside": [*torchrun, *exec_]}.get(how, exec_)
    command = [sys.executable, *options, "start.py", way]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    return result, json.loads((folder / "report.json").read_text("utf-8"))["ranks"]


_ALL = [*_STARTS, "torchrun outside"]


@pytest.mark.slow
@pytest.mark.parametrize("how", _ALL)
def test_each_batch_is_reported_once(tmp_path, how):
    result, world = start(tmp_path, how, "right")
    assert result.returncode == 0, result.stderr
    assert result.stdout.replace("\n", "") == "donedone"  # in one pipe their lines may run into each other
    assert [rank["rank"] for rank in world["ranks"]] == [0, 1]
    assert [rank["exit_code"] for rank in world["ranks"]] == [0, 0]
    for rank in world["ranks"]:
        (model,) = rank["models"]
        assert model["shapes"] == {"[2, 4] → [2, 3]": 4}
        assert (model["forwards"], model["backwards"], model["steps"]) == (4, 4, 4)
        assert {entry["name"] for entry in rank["collectives"]} >= {"all_reduce", "broadcast"}
    (coverage,) = world["coverage"]
    # DistributedSampler pads 7 samples to 8
    assert [coverage[key] for key in ("length", "drawn", "num_repeated", "num_left_out")] == [7, 8, 1, 0]
    assert world["mistakes"] == []
    assert result.stderr.count("Ran on 2 ranks") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mp.spawn", "torchrun", "torchrun outside"])
def test_ranks_that_can_never_go_on_are_stopped_and_named(tmp_path, how):
    result, world = start(tmp_path, how, "hangs")
    assert result.returncode == 1
    first, entry, other, *_ = world["problem"]
    assert first.startswith("The ranks are not in the same collective")
    assert ("all_reduce" in entry, "train.py:" in entry) == (True, True)
    assert ("barrier" in other, "train.py:" in other) == (True, True)
    assert first in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mp.spawn", "itself and a subprocess"])
def test_ranks_that_wait_for_one_that_no_process_becomes_are_stopped(tmp_path, how):
    result, world = start(tmp_path, how, "never joins")
    assert result.returncode == 1
    first, entry, *_ = world["problem"]
    assert first == "1 rank of 2 waited for rank 1, and no process is left to join:"
    assert entry.startswith("  rank 0: in init_process_group at train.py:")
    assert first in result.stderr


@pytest.mark.slow
def test_a_rank_waits_for_one_that_is_started_by_hand_elsewhere(tmp_path):
    (tmp_path / "train.py").write_text(_TRAIN)
    (tmp_path / "by_hand.py").write_text("import sys, train\ntrain.main(int(sys.argv[1]), 2, 'right')\n")
    command = [sys.executable, "-m", "dpdemo", "exec", "--gpus", "2", "by_hand.py"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "0"], **options) as first:
        giving_up = threading.Timer(120, first.kill)
        giving_up.start()
        place = "rank 0: in init_process_group at train.py:"
        said = list(itertools.takewhile(lambda line: place not in line, first.stderr))
        giving_up.cancel()
        second = subprocess.run([*command, "1"], **options, timeout=120, check=False)
        output, errors = first.communicate(timeout=120)
    assert "note: 1 rank of 2 waiting for rank 1, which this program did not start" in "".join(said)
    assert (first.returncode, second.returncode) == (0, 0), (errors, second.stderr)
    assert (output, second.stdout) == ("done\n", "done\n")


_HALVES = """
import sys, train, torch.multiprocessing as mp
if __name__ == "__main__":
    first, number = map(int, sys.argv[1:])
    context = mp.get_context("spawn")
    ranks = [context.Process(target=train.main, args=(first + rank, 3, "right")) for rank in range(number)]
    [rank.start() for rank in ranks]
    [rank.join() for rank in ranks]
    sys.exit(any(rank.exitcode for rank in ranks))
"""


@pytest.mark.slow
def test_ranks_wait_for_those_that_another_launcher_starts_later(tmp_path):
    """Half of a job, as on a node: all processes that are here wait, and the others are yet to come."""
    (tmp_path / "train.py").write_text(_TRAIN, "utf-8")
    (tmp_path / "half.py").write_text(_HALVES, "utf-8")
    command = [sys.executable, "-m", "dpdemo", "exec", "--gpus", "3", "half.py"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "0", "2"], **options) as first:
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(20)
        second = subprocess.run([*command, "2", "1"], **options, timeout=300, check=False)
        _, errors = first.communicate(timeout=300)
    assert (first.returncode, second.returncode) == (0, 0), (errors, second.stderr)


_LATE = """
import os, sys, time, train, torch.multiprocessing as mp
def main(rank):
    time.sleep(5 * rank)
    train.main(rank, 2, "right")
if __name__ == "__main__":
    main(int(os.environ["RANK"])) if "RANK" in os.environ else mp.spawn(main, nprocs=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["spawn", "torchrun", "torchrun outside"])
def test_nothing_is_said_while_a_rank_is_still_on_its_way(tmp_path, how):
    (tmp_path / "train.py").write_text(_TRAIN, "utf-8")
    (tmp_path / "late.py").write_text(_LATE, "utf-8")
    exec_ = ["-m", "dpdemo", "exec", "--gpus", "2"]
    options = {"spawn": exec_, "torchrun": [*exec_, *_TORCHRUN], "torchrun outside": [*_TORCHRUN, *exec_]}
    command = [sys.executable, *options[how], "late.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    assert "note:" not in result.stderr


_OUTLIVES = """
import os, subprocess, sys, time
code = "import time, torch; open('started', 'w').close(); time.sleep(2)"
subprocess.Popen([sys.executable, "-c", code, os.getcwd()])
while not os.path.exists("started"):
    time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("before", "end"),
    [
        ("", "os._exit(3)"),
        ("", "os.kill(os.getpid(), 15)"),
        pytest.param(_OUTLIVES, "os._exit(3)", marks=pytest.mark.slow),
    ],
)
def test_no_folder_is_left_however_a_program_ends(tmp_path, before, end):
    (tmp_path / "end.py").write_text(f"{before}import os\n{end}\n", "utf-8")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "dpdemo", "exec", "--gpus", "1", "end.py"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, timeout=300, check=False)
    assert result.returncode in {3, -15}
    wait_for(lambda: not processes_of(tmp_path))
    assert not list(temporary.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "torchrun outside"])
def test_the_rank_that_failed_is_named(tmp_path, how):
    result, world = start(tmp_path, how, "raises")
    assert result.returncode == 1
    assert world["problem"][0].startswith("rank 1 failed: ValueError: a bad row at train.py:")
    assert [rank["exit_code"] for rank in world["ranks"]][1] == 1


@pytest.mark.slow
def test_mistakes_that_raise_nothing_are_named(tmp_path):
    result, world = start(tmp_path, "mp.spawn", "forgotten")
    assert result.returncode == 0
    assert [entry["text"] for entry in world["mistakes"]] == [
        "Epochs 1 and 2 drew the same order on every rank"
    ]
