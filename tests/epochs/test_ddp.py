"""Running under DistributedDataParallel for real: processes on this machine, over loopback."""

import io
import json
import os
import re
import signal
import sys
import threading
from contextlib import redirect_stderr
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from ddpruns import TROUBLE, dpdemo, environment
from processes import run

import dpdemo as api
from dpdemo.calls.epoch import EpochRecorder
from dpdemo.calls.trace import see
from dpdemo.config.load import make_config
from dpdemo.epochs.ddp.records import RankRecord, merge
from dpdemo.epochs.ddp.world import World, in_world, launched_world, speaks
from dpdemo.ranks.events import Event
from dpdemo.ranks.launch import free_port
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import RankPlace

NUM_GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")

MANY = """
import json, os, sys
import dpdemo
for config in json.loads(open("configs.json").read()):
    report = dpdemo.run(strategy="ddp", virtual=sys.argv[1] == "virtual", **config)
    wanted = dpdemo.simulate(report.config)
    for part in ("batches", "devices", "distribution", "totals", "wrapped", "model", "strategy", "trace"):
        assert getattr(report, part) == getattr(wanted, part), (config, part, report, wanted)
open("equal-" + os.environ["RANK"], "w").close()  # in one pipe the ranks' lines run into each other
os._exit(0)  # an orderly exit aborts now and then (pytorch/pytorch#179291)
"""

CONFIGS = [
    *({"data_size": n, "batch_size": b} for n, b in ((1, 1), (2, 7), (3, 1), (10, 7), (100, 30), (101, 7))),
    *({"model": m, "dim": 0, "batch_size": 4, "data_size": 17} for m in ("linear", "partial", "transformer")),
    *({"model": m, "dim": 1, "batch_size": 4, "data_size": 17} for m in ("linear", "hybrid", "rnn")),
    {"model": "cnn", "batch_size": 4, "data_size": 16},
    {"shuffle": True, "seed": 3},
    {"shuffle": True, "data_size": 500, "batch_size": 8, "sampler_drop_last": True},
    {"drop_last": True, "data_size": 200},
    {"drop_last": True, "sampler_drop_last": True, "data_size": 200, "shuffle": True},
    {"sampler_drop_last": True, "trace_sample": 99},
    {"data_size": 2, "batch_size": 1, "trace_sample": 1},
    {"data_size": 200, "batch_size": 16, "drop_last": True, "trace_sample": 150},
    {"batch_size_is": "global", "batch_size": 12},
    {"dtype": "float64"},
    {"dtype": "bfloat16"},
    {"input_size": 40, "output_size": 9},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("ddp")
    (found / "trouble.py").write_text(TROUBLE)
    return found


def torchrun(folder, *options):
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    return run(command, cwd=folder, env=environment(folder, OMP_NUM_THREADS="1"))


@pytest.mark.slow
@pytest.mark.skipif(NUM_GPUS > 0, reason="CUDA GPUs are visible: the ranks would take those")
@pytest.mark.parametrize(("where", "configs"), [("cpu", CONFIGS), ("virtual", CONFIGS[::3])])
def test_what_ranks_see_is_what_simulate_predicts_for_every_config(tmp_path, where, configs):
    (tmp_path / "configs.json").write_text(json.dumps(configs))
    (tmp_path / "many.py").write_text(MANY)
    done = torchrun(tmp_path, "--standalone", "--nproc-per-node", "3", "many.py", where)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(path.name for path in tmp_path.glob("equal-*")) == ["equal-0", "equal-1", "equal-2"]


@pytest.mark.parametrize("virtual", [False, True])
@pytest.mark.parametrize("config", [{"trace_sample": 8}, {"shuffle": True, "drop_last": True}])
def test_a_rank_in_this_process_sees_what_simulate_predicts(monkeypatch, virtual, config):
    alone = {"RANK": "0", "WORLD_SIZE": "1", **SMALL, "MASTER_PORT": str(free_port())}
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    report = api.run(strategy="ddp", batch_size=7, virtual=virtual, **config)
    wanted = api.simulate(report.config)
    assert report == replace(wanted, command="run", virtual=virtual)
    assert report.devices == (("cuda:0",) if virtual else ("cpu",))


def test_a_launcher_of_ranks_needs_no_torch():
    code = """
import sys
from dpdemo.config.load import make_config
from dpdemo.epochs.ddp import launch
print(*launch.ranks_of(make_config({"strategy": "ddp", "gpus": [2, 0]}), virtual=True))
print(*launch.ranks_of(make_config({"strategy": "ddp", "processes": 2}), virtual=False))
print(*launch.ranks_of(make_config({"strategy": "ddp"}), virtual=True), "torch" in sys.modules)
"""
    done = run([sys.executable, "-c", code], check=True)
    assert done.stdout == "cuda:2 cuda:0\ncpu cpu\ncuda:0 cuda:1 False\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "virtual"),
    [(["--set", "processes=3"], []), (["--gpus", "3"], ["--virtual"]), (["--gpus", "3,1"], ["--virtual"])],
)
def test_one_command_prints_one_report_that_equals_the_prediction(folder, options, virtual):
    done = dpdemo(folder, "run", "--strategy", "ddp", *virtual, *options, "-f", "json")
    assert (done.returncode, done.stderr) == (0, "")
    wanted = json.loads(dpdemo(folder, "simulate", "--strategy", "ddp", *options, "-f", "json").stdout)
    assert json.loads(done.stdout) == {**wanted, "command": "run", "virtual": bool(virtual)}


@pytest.mark.slow
def test_the_python_api_runs_it_and_leaves_the_process_as_it_was(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ), [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    told = io.StringIO()
    with redirect_stderr(told):
        report = api.run(strategy="ddp", processes=2, model="trouble:Prints", batch_size=5)
    assert report.distribution == api.simulate(strategy="ddp", processes=2, batch_size=5).distribution
    assert (
        dict(os.environ),
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    ) == before
    lines = told.getvalue().splitlines()
    assert lines == [f"[1] a word of the model {number}" for number in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_what_ranks_print_comes_line_by_line_each_with_its_rank(folder, settings):
    options = ["--strategy", "ddp", "--set", "processes=2", "--model", "trouble:PrintsInPieces"]
    done = dpdemo(folder, "run", *options, "--data-size", "30", "-f", "json", **settings)
    assert json.loads(done.stdout)["schema"] == "dpdemo.report/1"
    lines = [f"{prefix}rank {rank} after a pause" for rank, prefix in ((0, ""), (1, "[1] ")) for _ in "12"]
    assert sorted(done.stderr.splitlines()) == sorted(lines)


@pytest.mark.slow
def test_gradients_are_really_averaged_over_the_ranks(folder, monkeypatch):
    monkeypatch.chdir(folder)
    api.run(strategy="ddp", processes=2, model="trouble:Averaged", batch_size=20)
    assert (folder / "averaged-0").exists()
    assert (folder / "averaged-1").exists()


@pytest.mark.slow
def test_ranks_get_the_rows_that_a_factory_returned_with_its_model(folder, monkeypatch):
    """Each rank's batch is as large as the factory's; a chosen size repeats its rows."""
    monkeypatch.chdir(folder)
    factory = {"strategy": "ddp", "processes": 2, "model": "trouble:with_rows", "data_size": 20}
    report = api.run(**factory)
    assert report.config.batch_size == 6
    inputs = [[dict(row.input)[""] for row in batch.in_model] for batch in report.batches]
    assert inputs == [[(6, 4), (6, 4)], [(4, 4), (4, 4)]]
    assert report.distribution.drawn == 20


@pytest.mark.slow
def test_it_runs_from_a_thread_and_tells_progress(folder, monkeypatch):
    """A world size of one, too: DDP over a single process."""
    monkeypatch.chdir(folder)
    calls, reports = [], []

    def work():
        progress = lambda *done: calls.append(done)  # noqa: E731
        reports.append(api.run(strategy="ddp", data_size=60_000, batch_size=20, progress=progress))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reports[0].distribution.world_size == 1
    assert calls
    assert {total for _, total in calls} == {3000}


@pytest.mark.slow
def test_nothing_to_distribute_is_hinted_at(folder):
    done = dpdemo(folder, "run", "--strategy", "ddp", "--data-size", "10")
    assert done.returncode == 0
    assert "one process, so nothing is distributed; try --set processes=3" in done.stderr


class TestRecords:
    """Making one report of what the ranks saw."""

    def record(self, rank, rows, drawn, node=0, **config):
        recorder = EpochRecorder(Devices.cpu(), 0)
        for count in rows:
            seen = see((torch.ones(count, 5),), torch.ones(count, 2))
            recorder.add((seen,), seen)
        config = {"strategy": "ddp", "data_size": 10} | config
        place = RankPlace(rank, node, rank, "cpu")
        return RankRecord(config, place, max(rows), recorder.groups(), tuple(drawn))

    def merged(self, *records, partial=False):
        return merge([RankRecord.from_line(record.to_line()) for record in records], partial=partial)

    def test_an_event_is_read_as_it_was_written(self):
        record = self.record(2, [3, 2], range(5), node=1, gpus=[0, 2])
        assert Event.from_line(record.to_line()) == replace(record, config=record.config | {"gpus": (0, 2)})

    def test_ranks_that_saw_other_shapes_stand_apart(self):
        report = self.merged(self.record(0, [3, 2], range(5)), self.record(1, [3, 1], range(5, 9)))
        assert [[rank.rows for rank in group.in_model] for group in report.batches] == [[3, 3], [2, 1]]
        assert report.batches[1].batch_size == 3
        assert report.distribution.dropped == (range(9, 10),)

    def test_what_was_drawn_twice_is_counted_not_computed(self):
        report = self.merged(self.record(0, [3], [7, 7, 2]), self.record(1, [3], [2, 2, 9]))
        assert report.distribution.num_repeated == 3
        assert report.distribution.repeated == (range(2, 3), range(7, 8))
        assert report.distribution.num_dropped == 7

    def test_an_interrupted_run_ends_with_the_last_batch_of_all(self):
        report = self.merged(
            self.record(0, [2, 2, 2], range(6), data_size=20), self.record(1, [2], range(6, 12)), partial=True
        )
        assert report.totals.batches == 1
        assert report.distribution.drawn == 4
        assert (report.distribution.num_repeated, report.distribution.num_dropped) == (0, 0)

    def test_ranks_keep_their_places(self):
        ranks = [self.record(rank, [1], [rank], node) for rank, node in enumerate([0, 0, 1, 1, 2])]
        report = self.merged(*ranks)
        assert (report.distribution.nodes, report.distribution.world_size) == (3, 5)
        assert [(rank.rank, rank.node) for rank in report.batches[0].in_model] == [
            *((0, 0), (1, 0), (2, 1), (3, 1), (4, 2))
        ]


TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
}  # fmt: skip


SMALL = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


class TestTheLaunchersWord:
    """Reading which rank this process is."""

    def test_a_rank_of_torchrun_knows_its_place(self):
        assert launched_world(TORCHRUN) == World(5, 8, 1, 4, 1)
        assert launched_world(TORCHRUN).num_nodes == 2

    def test_without_a_launcher_there_is_no_world(self):
        assert launched_world({}) is None

    def test_rank_and_world_size_alone_are_one_node(self):
        assert launched_world(SMALL | {"RANK": "1", "WORLD_SIZE": "2"}) == World(1, 2, 1, 2, 0)

    @pytest.mark.parametrize(
        "leftover", [{"RANK": "1"}, {"WORLD_SIZE": "4"}, {"RANK": "x", "LOCAL_RANK": "1"}]
    )
    def test_a_leftover_of_another_program_is_no_launcher(self, leftover):
        assert launched_world(leftover) is None

    @pytest.mark.parametrize(
        ("wrong", "found"),
        [
            ({"WORLD_SIZE": "two"}, "RANK='0' WORLD_SIZE='two' MASTER_ADDR="),
            ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE='999"),
            ({"RANK": "x"}, "got RANK='x'"),
            ({"RANK": "5"}, "got RANK='5' WORLD_SIZE='2'"),
            ({"RANK": "-1"}, "got RANK='-1'"),
            ({"LOCAL_RANK": "9"}, "LOCAL_RANK='9'"),
            ({"LOCAL_RANK": "x"}, "LOCAL_RANK='x'"),
            ({"GROUP_RANK": "1"}, "GROUP_RANK='1'"),
            ({"MASTER_ADDR": ""}, "got RANK='0' WORLD_SIZE='2' MASTER_PORT="),
            ({"MASTER_PORT": ""}, "got RANK='0' WORLD_SIZE='2' MASTER_ADDR='127.0.0.1'"),
            ({"MASTER_PORT": "70000"}, "MASTER_PORT='70000'"),
            ({"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE='0'"),
            ({"WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "3"}, "WORLD_SIZE='5'"),
        ],
    )
    def test_a_launcher_whose_variables_do_not_fit_is_an_error(self, wrong, found):
        with pytest.raises(api.UsageError, match=re.escape(found)) as caught:
            launched_world(SMALL | {"RANK": "0", "WORLD_SIZE": "2"} | wrong)
        assert "unset RANK and WORLD_SIZE" in caught.value.hint

    @pytest.mark.parametrize("variables", [{"RANK": "1"}, {"RANK": "x", "WORLD_SIZE": "y"}, TORCHRUN])
    def test_a_command_that_ranks_do_not_run_speaks_whatever_the_environment_says(
        self, monkeypatch, variables
    ):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert speaks(make_config({}))

    def test_ranks_above_0_are_silent(self, monkeypatch):
        for name, value in TORCHRUN.items():
            monkeypatch.setenv(name, value)
        assert not speaks(make_config({"strategy": "ddp"}))

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"nodes": 3}, "expected 3 nodes as asked, got 2 from the launcher"),
            ({"processes": 3}, "expected 3 processes as asked, got 4 from the launcher"),
            ({"gpus": [0, 1]}, "expected 2 gpus as asked, got 4 from the launcher"),
            ({"gpus": "all"}, "expected 1 gpus as asked, got 4 from the launcher"),
        ],
    )
    def test_never_other_numbers_than_asked(self, config, message):
        with pytest.raises(api.UsageError, match=message) as caught:
            in_world(make_config({"strategy": "ddp", **config}), launched_world(TORCHRUN), 1)
        assert "start torchrun with" in caught.value.hint

    @pytest.mark.parametrize(
        ("visible", "config", "wanted"),
        [
            (0, {}, {"nodes": 2, "processes": 4}),
            (4, {}, {"nodes": 2, "gpus": 4}),
            (4, {"processes": 4}, {"nodes": 2, "processes": 4}),
            (4, {"gpus": "all"}, {"nodes": 2, "gpus": 4}),
            (8, {"gpus": [4, 5, 6, 7], "nodes": 2}, {"nodes": 2, "gpus": [4, 5, 6, 7]}),
        ],
    )
    def test_what_was_not_asked_is_filled_in(self, visible, config, wanted):
        found = in_world(make_config({"strategy": "ddp", **config}), launched_world(TORCHRUN), visible)
        assert found == make_config({"strategy": "ddp", **wanted})


@pytest.mark.skipif(NUM_GPUS == 0, reason="no CUDA GPU is visible on this machine")
def test_ranks_on_gpus_talk_through_nccl():
    report = api.run(strategy="ddp", gpus=range(NUM_GPUS).stop)
    assert report.batches == api.simulate(strategy="ddp", gpus=NUM_GPUS).batches
