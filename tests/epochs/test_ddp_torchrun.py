"""The same command under torchrun: two agents on this machine meet over loopback, as two machines would."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from ddpruns import TROUBLE, environment, ranks_of
from processes import PATIENCE_SECONDS, wait_for

import dpdemo as api
from dpdemo.ranks.launch import free_port

NUM_GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed"),
    pytest.mark.skipif(NUM_GPUS > 0, reason="CUDA GPUs are visible: two agents would share them"),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trouble.py").write_text(TROUBLE)
    yield tmp_path
    wait_for(lambda: not ranks_of(tmp_path))


def agents(folder, *options, number=2, nproc=2):
    """Start the agents of several nodes, each as its own machine would."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(nproc),
        "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", str(folder),
        "--local-addr", "127.0.0.1", "--log-dir", str(folder), "-m", "dpdemo", "run",
        "--strategy", "ddp", *options,
    ]  # fmt: skip
    variables = environment(folder, OMP_NUM_THREADS="1")
    return [
        subprocess.Popen(
            command, cwd=folder, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(number)
    ]


def outcomes(started):
    try:
        return [(*process.communicate(timeout=PATIENCE_SECONDS), process.returncode) for process in started]
    finally:
        for process in started:
            process.kill()


@pytest.mark.slow
def test_two_agents_make_one_report_that_equals_the_prediction(folder):
    """The agents settle among themselves who becomes node 0, and so prints."""
    done = outcomes(agents(folder, "--batch-size", "7", "-f", "json"))
    assert [code for _, _, code in done] == [0, 0], done
    (printed,) = [out for out, _, _ in done if out]
    report = json.loads(printed)
    places = [
        (row["rank"], row["node"], row["local_rank"], row["device"])
        for row in report["batches"][0]["in_model"]
    ]
    assert places == [(0, 0, 0, "cpu"), (1, 0, 1, "cpu"), (2, 1, 0, "cpu"), (3, 1, 1, "cpu")]
    wanted = api.simulate(strategy="ddp", nodes=2, processes=2, batch_size=7)
    assert report["distribution"]["nodes"] == 2
    assert report["totals"]["samples"] == wanted.distribution.drawn
    assert [(batch["first"], batch["count"], batch["batch_size"]) for batch in report["batches"]] == [
        (group.first, group.count, group.batch_size) for group in wanted.batches
    ]


@pytest.mark.slow
def test_a_rank_that_raises_on_one_node_is_said_once_over_all_nodes(folder):
    done = outcomes(agents(folder, "--batch-size", "5", "--model", "trouble:Raises"))
    assert [code for _, _, code in done] == [1, 1]
    said = "".join(err for _, err, _ in done)
    assert said.count("error: rank ") == 1
    assert "error: rank 1 (node 0, local rank 1, cpu): expected the model `trouble:Raises`" in said
    assert said.count("ValueError: a bad row") == 1


@pytest.mark.slow
def test_ctrl_c_at_one_agent_leaves_no_rank_of_it(folder):
    started = agents(folder, "--model", "trouble:Endless", "--data-size", "1000000")
    wait_for(lambda: all((folder / f"started-{rank}").exists() for rank in range(4)))
    for process in started:
        process.send_signal(signal.SIGINT)
    for _, err, code in outcomes(started):
        assert code != 0
        assert "error: rank" not in err


@pytest.mark.slow
def test_more_processes_than_torchrun_started_are_an_error(folder):
    done = outcomes(agents(folder, "--set", "processes=3"))
    said = "".join(err for _, err, _ in done)
    assert all(code != 0 for _, _, code in done)
    assert "expected 3 processes as asked, got 2 from the launcher" in said
    assert "start torchrun with --nproc-per-node 3" in said
    assert "RANK" not in os.environ
