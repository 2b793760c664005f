"""Predicting an epoch under DistributedDataParallel."""

import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given
from processes import run

from dpdemo import UsageError, simulate
from dpdemo.config.catalogue import MODELS


def ddp(**overrides):
    return simulate(strategy="ddp", **overrides)


def test_the_tutorial_on_three_ranks():
    report = ddp(processes=3)
    assert [(g.first, g.count, g.batch_size, g.in_model[0].rows) for g in report.batches] == [
        (1, 1, 90, 30),
        (2, 1, 12, 4),
    ]
    assert list(report.devices) == ["cpu"] * 3
    assert report.totals.samples == 102
    assert report.distribution.repeated == (range(2),)


def test_four_nodes_of_eight_gpus():
    report = ddp(nodes=4, gpus=8)
    assert report.distribution.world_size == 32
    assert report.distribution.global_batch_size == 960
    last = report.batches[0].in_model[-1]
    assert (last.rank, last.node, last.local_rank, last.device) == (31, 3, 7, "cuda:7")


def test_a_batch_size_is_a_ranks_own_unless_it_is_called_global():
    assert ddp(gpus=3).distribution.batch_size == 30
    assert ddp(gpus=3, batch_size_is="global").distribution.batch_size == 10
    assert ddp(gpus=3, batch_size_is="global").distribution.global_batch_size == 30


def test_a_shuffled_epoch_counts_repeats_but_cannot_name_them():
    distribution = ddp(processes=3, shuffle=True).distribution
    assert (distribution.num_repeated, distribution.repeated, distribution.dropped) == (2, None, None)


@given(
    nodes=st.integers(1, 5),
    gpus=st.integers(1, 9),
    data_size=st.integers(1, 400),
    batch_size=st.integers(1, 40),
    model=st.sampled_from(list(MODELS)),
    dim=st.integers(0, 1),
)
def test_every_rank_computes_the_same_rows_and_they_add_up(**config):
    report = ddp(**config)
    assert all(
        len({rank.rows for rank in group.in_model}) == 1 and not group.idle for group in report.batches
    )
    assert report.totals.samples == report.distribution.drawn
    assert report.totals.utilization == 1.0
    assert report.sample_weight == 1.0
    for group in report.batches:
        assert len({rank.rows for rank in group.in_model}) == 1
        assert not group.idle
        assert group.rows_computed == group.batch_size
        assert group.outside.input[0][1][config["dim"]] == group.in_model[0].rows


def test_no_torch_is_imported():
    code = (
        "import sys, dpdemo; dpdemo.simulate(strategy='ddp', nodes=4, gpus=8, shuffle=True); "
        "sys.exit('torch' in sys.modules)"
    )
    assert run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        ({"gpus": "all"}, "which depends on the machine", "gpus=8"),
        ({"gpus": [0, 0]}, "a different GPU for each rank", "each GPU once"),
        ({"gpus": 2, "processes": 3}, "as many processes as GPUs, got 3 and 2", "leave processes out"),
        ({"gpus": 4, "batch_size_is": "global"}, "that the 4 ranks divide, got 30", "choose 28 or 32"),
        ({"gpus": 40, "batch_size_is": "global"}, "that the 40 ranks divide, got 30", "choose 40, or"),
        ({"gpus": 101, "sampler_drop_last": True}, "at least one sample per rank", "fewer ranks"),
        ({"gpus": 20, "drop_last": True}, "< 30 per batch with drop_last", "smaller batch"),
        ({"gpus": 2, "output_device": 1}, "expected no output device under ddp, got 1", "gathers nothing"),
    ],
)
def test_what_cannot_be_is_said_with_a_next_step(config, message, hint):
    with pytest.raises(UsageError, match="expected") as caught:
        ddp(**config)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "config", [{"nodes": 2}, {"processes": 1}, {"batch_size_is": "global"}, {"sampler_drop_last": True}]
)
def test_a_key_of_ddp_alone_is_an_error_without_it(config):
    with pytest.raises(
        UsageError, match=f"expected `{next(iter(config))}` only with the strategy ddp"
    ) as caught:
        simulate(gpus=2, **config)
    assert "strategy='ddp'" in caught.value.hint


def test_dataparallels_own_report_has_no_distribution():
    assert simulate(gpus=3).distribution is None
