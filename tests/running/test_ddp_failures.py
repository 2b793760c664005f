"""Failures under DDP: reported once, by the rank that failed, within seconds; no process is left."""

import math
import os
import re
import signal
import socket
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ddpruns import TROUBLE, dpdemo, environment, processes_of, start
from processes import PATIENCE_SECONDS, wait_for

import dpdemo as api
from dpdemo.config.load import make_config
from dpdemo.errors import PeerFailedError
from dpdemo.running.ddp.rank import PeerLostError, Rank, claiming_failures
from dpdemo.running.ddp.world import World

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trouble.py").write_text(TROUBLE)
    yield tmp_path
    wait_for(lambda: not processes_of(tmp_path))  # no orphan, whatever the test did


def run_ddp(folder, model, *options, processes=2):
    return dpdemo(
        folder, "run", "--strategy", "ddp", "--set", f"processes={processes}",
        "--model", f"trouble:{model}", "--batch-size", "5", *options,
    )  # fmt: skip


@pytest.mark.slow
def test_a_rank_that_raises_says_rank_node_and_its_own_lines_once(folder):
    done = run_ddp(folder, "Raises", "--timeout", str(10 * PATIENCE_SECONDS), processes=3)
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[0] == (
        "error: rank 1 (node 0, local rank 1, cpu): expected the model `trouble:Raises` to take batch 3, "
        "got ValueError: a bad row"
    )
    assert [line.rpartition(" in ")[2] for line in lines if ".py:" in line] == ["forward", "trouble"]
    assert done.stderr.count("a bad row") == 2  # the message, and the line that raised it
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_ranks_that_all_raise_say_it_once(folder):
    done = run_ddp(folder, "AllRaise")
    assert done.returncode == 1
    assert done.stderr.count("error: rank ") == 1
    assert done.stderr.count("ValueError: a bad row") == 1


@pytest.mark.slow
def test_the_rank_that_failed_first_has_time_to_say_so(folder):
    done = run_ddp(folder, "FailsSecond")
    assert done.returncode == 1
    assert done.stderr.startswith("error: rank 1 (node 0, local rank 1, cpu): expected the model")
    assert "ValueError: a bad row" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_crashed_rank_is_named_with_its_line(folder):
    done = run_ddp(folder, "Crashes")
    assert done.returncode == 1
    assert "[1] Fatal Python error: Segmentation fault" in done.stderr
    assert "in trouble" in done.stderr
    assert "expected every rank to the end, got SIGSEGV for rank 1 (node 0, local rank 1, cpu)" in done.stderr


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named(folder):
    done = run_ddp(folder, "Killed")
    assert done.returncode == 1
    assert "got SIGKILL for rank 1 (node 0, local rank 1, cpu)" in done.stderr
    assert "out of memory?" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.slow
def test_a_rank_that_ends_its_process_is_named(folder):
    done = run_ddp(folder, "Exits")
    assert done.returncode == 1
    assert "rank 1 (node 0, local rank 1, cpu): expected the model `trouble:Exits`" in done.stderr
    assert "to take batch 3, got SystemExit: 0" in done.stderr
    assert "sys.exit(0)" in done.stderr


@pytest.mark.slow
def test_a_rank_that_keeps_the_others_waiting_is_bounded_by_the_timeout(folder):
    done = run_ddp(folder, "Stuck", "--timeout", "5")
    assert done.returncode == 1
    # rank 0 as a rule; either of them where the machine starts one that much later than the other
    lost = r"rank ([01]) \(node 0, local rank \1, cpu\): expected 2 ranks to the end, got a lost connection"
    assert re.search(lost, done.stderr)
    assert "for 5 s (--timeout)" in done.stderr


@pytest.mark.slow
def test_a_model_that_cannot_be_found_is_a_usage_error_said_once(folder):
    done = run_ddp(folder, "Missing")
    assert done.returncode == 2
    assert done.stderr.count("expected `Missing`") == 1


@pytest.mark.slow
def test_a_model_without_parameters_is_what_ddp_says_of_it(folder):
    done = run_ddp(folder, "Nothing")
    assert done.returncode == 1
    assert (
        "DistributedDataParallel is not needed when a module doesn't have any parameter that" in done.stderr
    )


@pytest.mark.slow
def test_ctrl_c_stops_all_ranks_and_keeps_what_they_saw(folder):
    program = start(
        folder, "-m", "dpdemo", "run", "--strategy", "ddp", "--set", "processes=2",
        "--model", "trouble:Endless", "--data-size", "1000000", "-f", "json",
    )  # fmt: skip
    wait_for(lambda: (folder / "started-0").exists() and (folder / "started-1").exists())
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=PATIENCE_SECONDS)
    assert program.returncode == 130
    assert '"partial": true' in out
    assert err.splitlines() == ["error: interrupted: the report holds the batches done so far"]


def test_ctrl_c_before_the_first_batch_ends_it_as_well(folder):
    program = start(folder, "-m", "dpdemo", "run", "--strategy", "ddp", "--set", "processes=2")
    wait_for(lambda: len(processes_of(folder)) == 2)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=PATIENCE_SECONDS)
    assert (program.returncode, out) == (130, "")
    assert "Traceback" not in err


@pytest.mark.slow
def test_ranks_do_not_outlive_a_parent_that_is_killed(folder):
    program = start(
        folder, "-m", "dpdemo", "run", "--strategy", "ddp", "--set", "processes=2",
        "--model", "trouble:Endless", "--data-size", "1000000",
    )  # fmt: skip
    wait_for((folder / "started-1").exists)
    assert len(processes_of(folder)) == 2
    program.kill()
    program.communicate()
    wait_for(lambda: not processes_of(folder))


def test_more_nodes_than_this_one_need_a_launcher():
    with pytest.raises(
        api.UsageError, match="to be started on each of 2 nodes, got this process alone"
    ) as caught:
        api.run(strategy="ddp", nodes=2, processes=2)
    assert "torchrun --nnodes 2" in caught.value.hint


def test_a_torch_without_the_backend_is_a_usage_error(monkeypatch):
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.distributed.is_gloo_available", lambda: False)
    with pytest.raises(api.UsageError, match="expected a torch with gloo") as caught:
        api.run(strategy="ddp", processes=1)
    assert "dpdemo simulate --strategy ddp" in caught.value.hint


def test_virtual_gpus_are_not_for_ddp():
    with pytest.raises(api.UsageError, match="expected real devices under ddp, got virtual GPUs"):
        api.run(strategy="ddp", gpus=2, virtual=True)


@pytest.mark.parametrize("timeout", [0, -1, 1e300, math.inf, math.nan])
def test_a_timeout_out_of_range_is_a_usage_error(timeout):
    with pytest.raises(
        api.UsageError, match=rf"at most 31536000 \(a year\), got {re.escape(f'{timeout:g}')} - at argument"
    ):
        api.run(strategy="ddp", processes=2, timeout=timeout)


class TestUnderALauncher:
    """One rank by itself: the environment is the launcher's word."""

    def rank_0_of_2(self, folder, port, *options):
        variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return dpdemo(folder, "run", "--strategy", "ddp", *options, **variables)

    @pytest.mark.slow
    def test_a_rendezvous_that_never_completes_ends_with_the_timeout(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        done = self.rank_0_of_2(folder, port, "--timeout", "2")
        assert (done.returncode, done.stdout) == (1, "")
        assert "expected 2 ranks to meet within 2 s, got rank 0 waiting: " in done.stderr
        assert f" - at 127.0.0.1:{port}\n" in done.stderr
        assert "start every node" in done.stderr

    def test_a_port_in_use_is_said(self, folder):
        with socket.socket() as taken:
            taken.bind(("", 0))
            taken.listen()
            done = self.rank_0_of_2(folder, taken.getsockname()[1], "--timeout", "5")
        assert done.returncode == 1
        assert "expected a free port, got one in use - at 127.0.0.1:" in done.stderr
        assert "--rdzv-endpoint HOST:PORT" in done.stderr

    def test_fewer_ranks_than_asked_are_an_error(self, folder):
        done = self.rank_0_of_2(folder, 1, "--set", "processes=3")
        assert done.returncode == 2
        assert "expected 3 processes as asked, got 2 from the launcher" in done.stderr


def test_a_rank_that_stops_because_of_another_is_silent(monkeypatch, capsys):
    from dpdemo.cli import main

    def stop(*_, **__):
        raise PeerFailedError("rank 0 stopped")

    monkeypatch.setattr("dpdemo.cli.app.build", lambda _: stop)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "")


class TestALostConnection:
    """Ctrl-C reaches one rank after the other; those that it has yet to reach see the first ones leave."""

    LOST = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")

    @staticmethod
    def stop(store, error, before=lambda: None):
        """Raise in the only rank of a world of one."""
        rank = Rank(World(0, 1, 0, 1, 0), torch.device("cpu"), store, timedelta(seconds=60))
        with claiming_failures(rank, make_config({})):
            before()
            raise error

    def test_is_said_where_no_rank_has_stopped_before(self):
        with pytest.raises(PeerLostError, match="got a lost connection: Connection closed by peer"):
            self.stop(dist.HashStore(), self.LOST)

    def test_is_no_news_after_ctrl_c_at_another_rank(self, monkeypatch):
        store = dist.HashStore()
        waited = []
        monkeypatch.setattr("time.sleep", waited.append)  # for the launcher, which ends this rank meanwhile
        with pytest.raises(KeyboardInterrupt):
            self.stop(store, KeyboardInterrupt())
        with pytest.raises(PeerFailedError):
            self.stop(store, self.LOST)
        assert waited == [10]

    def test_waits_for_a_ctrl_c_of_its_own_where_the_store_is_gone_too(self, monkeypatch):
        monkeypatch.setattr("time.sleep", lambda _: os.kill(os.getpid(), signal.SIGINT))
        holder = [dist.TCPStore("127.0.0.1", 0, is_master=True)]
        store = dist.TCPStore("127.0.0.1", holder[0].port)
        with pytest.raises(KeyboardInterrupt):
            self.stop(store, self.LOST, before=holder.clear)


def test_the_environment_of_these_tests_is_loopback(tmp_path):
    assert environment(tmp_path)["GLOO_SOCKET_IFNAME"] == "lo"
    assert "RANK" not in os.environ
