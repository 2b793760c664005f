"""Failures under DDP: reported once, by the rank that failed, within seconds; no process is left."""

import math
import os
import re
import signal
import socket
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ddpruns import TROUBLE, dpdemo, environment, ranks_of, start
from processes import PATIENCE_SECONDS, wait_for

import dpdemo as api
from dpdemo.config.load import make_config
from dpdemo.epochs.ddp.launch import report_of
from dpdemo.epochs.ddp.rank import Rank, one_failure
from dpdemo.epochs.ddp.records import EpochProgress, Job, PeerLostError, RankRecord, Refusal
from dpdemo.epochs.ddp.world import World
from dpdemo.epochs.interrupts import RunInterrupted
from dpdemo.errors import PeerFailedError
from dpdemo.ranks.launch import Outcome, free_port
from dpdemo.ranks.log import RankLog
from dpdemo.results.batches import BatchGroup, Outside, Replica
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import RankPlace

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trouble.py").write_text(TROUBLE)
    yield tmp_path
    wait_for(lambda: not ranks_of(tmp_path))  # no orphan, whatever the test did


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


OF_RANK_1 = "rank 1 (node 0, local rank 1, cpu)"
ONCE = {
    "AllRaise": (1, ["error: rank ", "ValueError: a bad row"]),
    "Crashes": (1, ["[1] Fatal Python error: Segmentation fault", f"got SIGSEGV for {OF_RANK_1}"]),
    "Killed": (1, [f"got SIGKILL for {OF_RANK_1}", "out of memory?"]),
    "Exits": (1, [f"{OF_RANK_1}: expected the model `trouble:Exits` to take batch 3, got SystemExit: 0"]),
    "Missing": (2, ["expected `Missing`"]),
    "Nothing": (1, ["DistributedDataParallel is not needed when a module doesn't have any parameter that"]),
}
"""By model, the exit code and what is printed once."""


@pytest.mark.slow
@pytest.mark.parametrize("model", ONCE)
def test_a_rank_that_fails_is_named_once(folder, model):
    done = run_ddp(folder, model)
    code, texts = ONCE[model]
    assert (done.returncode, done.stdout) == (code, "")
    assert {text: done.stderr.count(text) for text in texts} == dict.fromkeys(texts, 1)
    assert done.stderr.count("error: ") == 1 + (model == "Crashes")  # faulthandler's own


@pytest.mark.slow
def test_a_rank_that_keeps_the_others_waiting_is_bounded_by_the_timeout(folder):
    done = run_ddp(folder, "Stuck", "--timeout", "5")
    assert done.returncode == 1
    # rank 0 as a rule; either of them where the machine starts one that much later than the other
    lost = r"rank ([01]) \(node 0, local rank \1, cpu\): expected 2 ranks to the end, got a lost connection"
    assert re.search(lost, done.stderr)
    assert "for 5 s (--timeout)" in done.stderr


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
    wait_for(lambda: len(ranks_of(folder)) == 2)
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
    assert len(ranks_of(folder)) == 2
    program.kill()
    program.communicate()
    wait_for(lambda: not ranks_of(folder))


def test_more_nodes_than_this_one_need_a_launcher():
    with pytest.raises(
        api.UsageError, match="to be started on each of 2 nodes, got this process alone"
    ) as caught:
        api.run(strategy="ddp", nodes=2, processes=2)
    assert "torchrun --nnodes 2" in caught.value.hint


def test_virtual_gpus_are_those_of_one_machine(monkeypatch):
    with pytest.raises(api.UsageError, match="expected one node with virtual GPUs, got 2"):
        api.run(strategy="ddp", nodes=2, gpus=2, virtual=True)
    monkeypatch.setattr("dpdemo.epochs.ddp.launch.launched_world", lambda: World(0, 6, 0, 2, 0))
    with pytest.raises(api.UsageError, match="expected one node with virtual GPUs, got 3"):
        api.run(strategy="ddp", virtual=True)


def test_all_virtual_gpus_are_no_number():
    with pytest.raises(api.UsageError, match="expected a number of virtual GPUs, got `all`"):
        api.run(strategy="ddp", gpus="all", virtual=True)


@pytest.mark.parametrize("timeout", [0, -1, 1e300, math.inf, math.nan])
def test_a_timeout_out_of_range_is_a_usage_error(timeout):
    with pytest.raises(
        api.UsageError, match=rf"at most 31536000 \(a year\), got {re.escape(f'{timeout:g}')} - at argument"
    ):
        api.run(strategy="ddp", processes=2, timeout=timeout)


class TestTheEndOfRanks:
    """One report, or one error, of what two ranks noted."""

    def report(self, first, second, *, codes=(0, 0), code=0, failures=(), stopped_by=None):
        ranks = [RankLog(number, Path("none")) for number in (0, 1)]
        for rank, events, its_code in zip(ranks, (first, second), codes, strict=True):
            rank.code = its_code
            for event in events:
                rank.take(event)
        failed = tuple(ranks[number] for number in failures)
        return report_of(Outcome(code, (), failed, ranks, stopped_by), Devices.cpu(2))

    def record(self, rank, batches=2):
        group = BatchGroup(1, batches, 5, (Replica(0, "cpu", 5, (), ()),), Devices(), Outside("", "", (), ()))
        config = {"strategy": "ddp", "batch_size": 5, "data_size": 20}
        drawn = tuple(range(rank, 20, 2))
        return RankRecord(config, RankPlace(rank, 0, rank, "cpu"), 5, (group,), drawn)

    def test_records_of_all_are_a_report(self):
        report = self.report([EpochProgress(1, 2), self.record(0)], [self.record(1)])
        assert (report.totals.samples, report.partial, report.distribution.dropped) == (20, False, ())

    def test_an_error_of_ours_is_raised_again_as_it_was(self):
        lost = Refusal(text="lost", at="", is_lost=True, t=1)
        refused = Refusal(text=f"{OF_RANK_1}: wrong", at="model", hints=("try {gpus=2}",), t=2, is_usage=True)
        with pytest.raises(api.UsageError, match="wrong - at argument `model`") as caught:
            self.report([lost], [refused], codes=(1, 2), code=2, failures=[1])
        assert caught.value.hint == "try gpus=2"
        with pytest.raises(api.RunError, match="lost"):
            self.report([lost], [], codes=(1, -15), code=1)

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            (-9, f"got SIGKILL for {OF_RANK_1}"),
            (-11, f"got SIGSEGV for {OF_RANK_1}"),
            (7, f"exit code 7 of {OF_RANK_1}"),
        ],
    )
    def test_a_rank_without_a_word_is_named(self, code, message):
        with pytest.raises(api.RunError, match=re.escape(message)):
            self.report([], [], codes=(0, code), code=1)

    def test_ctrl_c_keeps_the_batches_that_all_ranks_have_done(self):
        with pytest.raises(RunInterrupted) as caught:
            self.report([self.record(0)], [self.record(1, 1)], code=130, stopped_by=signal.SIGINT)
        assert (caught.value.report.totals.batches, caught.value.report.partial) == (1, True)

    def test_ctrl_c_before_all_ranks_have_a_record_is_just_that(self):
        with pytest.raises(KeyboardInterrupt) as caught:
            self.report([self.record(0)], [], code=130, stopped_by=signal.SIGINT)
        assert not isinstance(caught.value, RunInterrupted)

    def test_another_signal_is_an_error(self):
        with pytest.raises(api.RunError, match="got SIGTERM; all ranks are stopped"):
            self.report([self.record(0)], [self.record(1)], code=143, stopped_by=signal.SIGTERM)

    def test_a_rank_that_ends_well_without_a_record_is_an_error(self):
        with pytest.raises(api.RunError, match="expected a result of every rank"):
            self.report([self.record(0)], [])


class TestUnderALauncher:
    """One rank by itself: the environment is the launcher's word."""

    def rank_0_of_2(self, folder, port, *options):
        variables = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return dpdemo(folder, "run", "--strategy", "ddp", *options, **variables)

    @pytest.mark.slow
    def test_a_rendezvous_that_never_completes_ends_with_the_timeout(self, folder):
        port = free_port()
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
        job = Job(make_config({}), timedelta(seconds=60), virtual=False)
        with one_failure(Rank(job, World(0, 1, 0, 1, 0), torch.device("cpu"), store)):
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
