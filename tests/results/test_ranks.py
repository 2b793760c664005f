"""Drawing DistributedDataParallel: lines by rank and node, and what was drawn twice or never."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonforms import read_json
from samples import drawn, observed, simulated

from dpdemo.results.ranks import Collective, Mistake, RankModel, RankResult, RanksResult


def ddp(**config):
    return simulated(strategy="ddp", **config)


configs = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 40),
        "gpus": st.integers(1, 20),
        "data_size": st.integers(1, 3000),
        "batch_size": st.integers(1, 50),
        "shuffle": st.booleans(),
    }
)


def interrupted_ddp():
    """The report of a run that was stopped after one of five batches."""
    report = ddp(processes=2, batch_size=10)
    batches = (dataclasses.replace(report.batches[0], count=1),)
    distribution = dataclasses.replace(report.distribution, drawn=20)
    return observed(report, partial=True, batches=batches, distribution=distribution)


PICTURES = {
    "ddp-3-80": ddp(processes=3),
    "ddp-4x8-80": ddp(nodes=4, gpus=8),
    "ddp-20x8-80": ddp(nodes=20, gpus=8, data_size=10**9),
    "ddp-global-80": ddp(nodes=2, gpus=2, batch_size=64, batch_size_is="global", sampler_drop_last=True),
    "ddp-shuffled-80": ddp(processes=3, shuffle=True),
    "ddp-few-samples-80": ddp(gpus=5, data_size=2),
    "ddp-interrupted-80": interrupted_ddp(),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_of_ranks_looks_like_the_golden_one(name, golden):
    golden(f"{name}.txt", drawn(PICTURES[name]))


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_plain_forms_of_ranks_look_like_the_golden_ones(form, golden):
    golden(f"ddp-2x2.{form}", drawn(ddp(nodes=2, gpus=2), form))


@given(configs)
def test_every_rank_is_on_one_line_and_in_order(config):
    report = ddp(**config)
    ranks = config["nodes"] * config["gpus"]
    for group in report.batches:
        lines = list(report.groups.lines(group))
        firsts = [int(re.match(r"ranks? (\d+)", line.label)[1]) for line in lines]
        assert firsts == [sum(line.count for line in lines[:number]) for number in range(len(lines))]
        assert sum(line.count for line in lines) == ranks
        assert sum(line.rows * line.count for line in lines) == group.batch_size
        assert len(lines) <= 16


@given(configs)
def test_json_of_ranks(config):
    report = ddp(**config)
    data = read_json("report", drawn(report, "json"))
    for batch in data["batches"]:
        places = [(entry["rank"], entry["node"], entry["local_rank"]) for entry in batch["in_model"]]
        assert places == [(rank, *divmod(rank, config["gpus"])) for rank in range(len(places))]
    assert data["distribution"]["drawn"] == data["totals"]["samples"]


def test_nodes_of_several_sizes_have_lines_of_their_own():
    report = ddp(nodes=3, gpus=8)
    places = [(0, 8), (1, 8), (2, 4), (3, 4)]
    nodes = [(node, local) for node, size in places for local in range(size)]
    groups = tuple(
        dataclasses.replace(
            group,
            in_model=tuple(
                dataclasses.replace(rank, node=node, local_rank=local, device=f"cuda:{local}")
                for rank, (node, local) in zip(group.in_model, nodes, strict=True)
            ),
        )
        for group in report.batches
    )
    distribution = dataclasses.replace(report.distribution, nodes=4)
    report = dataclasses.replace(report, batches=groups, distribution=distribution)
    assert [line.label for line in report.groups.lines(report.batches[0])] == [
        "ranks 0–7: node 0, cuda:0–7",
        "ranks 8–15: node 1, cuda:0–7",
        "ranks 16–19: node 2, cuda:0–3",
        "ranks 20–23: node 3, cuda:0–3",
    ]
    assert "over 24 ranks on 4 nodes" in drawn(report)
    assert "of 8 GPUs" not in drawn(report)


def test_the_tip_names_the_option_against_repeats():
    assert "--set sampler_drop_last=true leaves out 1 sample instead of" in drawn(ddp(processes=3))
    assert "sampler_drop_last" not in drawn(ddp(processes=4))
    assert "sampler_drop_last" not in drawn(observed(ddp(processes=3)))


def test_models_made_at_each_step_are_one_line_and_their_number_is_bounded():
    alike = [RankModel("Net", "train.py:3", 1, 1, 1, {"[4, 3] → [4, 2]": 1})] * 1000
    others = [RankModel(f"Net{number}", "train.py:3", 0, 0, 0, {}) for number in range(9)]
    result = RanksResult("train.py", (), (RankResult(0, 0, (), {}, (*alike, *others)),))
    text = str(result)
    assert text.count("DistributedDataParallel") == 8
    assert "DistributedDataParallel(Net) at train.py:3, made 1000 times" in text
    assert ["0", "1000", "1000", "1000", "[4,", "3]", "→", "[4,", "2]"] in [
        line.split() for line in text.splitlines()
    ]
    assert "2 modules or loaders are not listed: --save FILE.json" in text


def test_equal_ranks_share_a_row():
    collectives = (Collective("all_reduce", 6, 2048), Collective("barrier", 1, 0))
    alike = [RankResult(rank, 0, collectives, {f"cuda:{rank}": 1024}) for rank in range(3)]
    other = RankResult(3, 0, collectives[:1], {"cuda:0": 1024})
    assert "all_reduce" in str(RanksResult("train.py", (), (*alike, other)))  # which has nothing else to show
    wrapped = dataclasses.replace(other, models=(RankModel("Net", "train.py:3", 1, 1, 1, {}),))
    assert "all_reduce" not in str(RanksResult("train.py", (), (*alike, wrapped)))
    report = RanksResult("train.py", (), (*alike, other), verbose=True)
    lines = [line.split() for line in str(report).splitlines()]
    assert ["0–3", "all_reduce", "6", "2", "KiB"] in lines
    assert ["0–2", "barrier", "1"] in lines
    assert ["cuda:0", "2", "KiB"] in lines  # of two ranks
    assert ["cuda:1–2", "each", "1", "KiB"] in lines


def test_collectives_are_drawn_beside_a_mistake_and_always_in_json():
    ranks = (RankResult(0, 0, (Collective("all_reduce", 6, 2048),), {}),)
    mistake = Mistake("2 ranks wrote m.pt", "train.py:30", "write it on rank 0 alone")
    assert "all_reduce" in str(RanksResult("train.py", (), ranks, mistakes=(mistake,)))
    assert "all_reduce" in RanksResult("train.py", (), ranks).to_json()


def test_steps_that_a_scaler_skipped_are_counted():
    model = RankModel("Net", "train.py:3", 6, 6, 5, {"[4, 3] → [4, 2]": 6}, skipped=1)
    report = RanksResult("train.py", (), tuple(RankResult(rank, 0, (), {}, (model,)) for rank in range(2)))
    line = next(line for line in str(report).splitlines() if "GradScaler" in line)
    assert line == "Skipped by the GradScaler, since a gradient was infinite or NaN: 1 step"
