"""Running an epoch for real, on the CPU and, where there are any, on GPUs."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import dpdemo
from dpdemo.config.catalogue import MODELS

NUM_GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
needs_gpu = pytest.mark.skipif(NUM_GPUS == 0, reason="no CUDA GPU is visible on this machine")
NUM_VIRTUAL_EXAMPLES = settings.default.max_examples
needs_no_gpu = pytest.mark.skipif(NUM_GPUS > 0, reason="a CUDA GPU is visible on this machine")

FAILING = """
import torch
from torch import nn

class FailsOnShortBatch(nn.Module):
    def forward(self, x):
        if len(x) < 30:
            raise ValueError("a batch too short")
        return x

class TakesEight(nn.Linear):
    def __init__(self):
        super().__init__(8, 2)

class StopsAtThird(nn.Module):
    calls = 0
    def forward(self, x):
        StopsAtThird.calls += 1
        if StopsAtThird.calls == 3:
            raise KeyboardInterrupt
        return x
"""


@pytest.fixture
def own_models(users_folder):
    users_folder({"failing_models.py": FAILING})


@needs_no_gpu
class TestOnTheCPU:
    def test_the_tutorial_is_one_in_model_line_a_batch(self):
        report = dpdemo.run()
        assert [(g.count, g.batch_size) for g in report.batches] == [(3, 30), (1, 10)]
        assert [[r.rows for r in g.in_model] for g in report.batches] == [[30], [10]]
        assert list(report.devices) == ["cpu"]
        assert not report.virtual

    @given(
        model=st.sampled_from(list(MODELS)),
        data_size=st.integers(1, 60),
        batch_size=st.integers(1, 20),
        dim=st.integers(0, 1),
        shuffle=st.booleans(),
        seed=st.integers(0, 5),
    )
    @settings(max_examples=150, deadline=None)
    def test_what_is_seen_is_what_simulate_predicts(self, **config):
        if config["model"] == "cnn":
            config["batch_size"] += 1  # BatchNorm in training refuses one row
            config["data_size"] = config["batch_size"] * 3
        report = dpdemo.run(**config)
        assert report.batches == dpdemo.simulate(**config).batches

    def test_an_invisible_gpu_is_an_error_with_a_hint_at_simulate(self):
        with pytest.raises(
            dpdemo.UsageError, match="expected visible GPUs, got cuda:0, cuda:3, with none visible here"
        ) as caught:
            dpdemo.run(gpus=[0, 3])
        assert "dpdemo simulate" in caught.value.hint

    @pytest.mark.parametrize("gpus", ["all", 2, [5]])
    def test_never_fewer_devices_than_asked(self, gpus):
        with pytest.raises(dpdemo.UsageError, match="expected visible GPUs"):
            dpdemo.run(gpus=gpus)

    def test_an_output_device_needs_to_be_visible_too(self):
        with pytest.raises(dpdemo.UsageError, match="got cuda:1"):
            dpdemo.run(output_device=1)


@st.composite
def virtual_configs(draw):
    """Configs of all built-in models over a few GPUs, in any order, gathered anywhere."""
    num_gpus = draw(st.integers(1, 9))
    ordinals = draw(st.permutations(range(num_gpus)))[: draw(st.integers(1, num_gpus))]
    batch_size = draw(st.integers(1, 40))
    return {
        "model": draw(st.sampled_from(list(MODELS))),
        "input_size": draw(st.integers(2, 4)),  # BatchNorm in training refuses a lone pixel
        "output_size": draw(st.integers(1, 3)),
        "batch_size": batch_size,
        "data_size": draw(st.integers(1, 2 * batch_size + 3)),
        "gpus": list(ordinals),
        "output_device": draw(st.none() | st.integers(0, num_gpus - 1)),
        "dim": draw(st.integers(0, 1)),
        "shuffle": draw(st.booleans()),
    }


@st.composite
def traced_configs(draw):
    """The same with a sample to trace, and GPUs that may be named several times."""
    config = draw(virtual_configs())
    config["gpus"] += draw(st.lists(st.sampled_from(config["gpus"]), max_size=2))
    if draw(st.booleans()):
        config |= {"shuffle": False, "trace_sample": draw(st.integers(0, config["data_size"] - 1))}
    return config


@needs_no_gpu
class TestOnVirtualGPUs:
    @given(virtual_configs())
    @settings(max_examples=NUM_VIRTUAL_EXAMPLES, deadline=None)
    def test_what_is_seen_is_what_simulate_predicts(self, config):
        seen = dpdemo.run(**config, virtual=True)
        predicted = dpdemo.simulate(**config)
        assert seen.batches == predicted.batches
        assert (seen.devices, seen.wrapped, seen.totals) == (
            predicted.devices,
            predicted.wrapped,
            predicted.totals,
        )

    @pytest.mark.slow
    @given(traced_configs())
    @settings(max_examples=NUM_VIRTUAL_EXAMPLES // 4, deadline=None)
    def test_a_run_on_gpus_named_twice_equals_its_prediction(self, config):
        seen = dpdemo.run(**config, virtual=True)
        predicted = dpdemo.simulate(**config)
        assert seen.batches == predicted.batches
        assert (seen.devices, seen.wrapped, seen.totals, seen.trace) == (
            predicted.devices,
            predicted.wrapped,
            predicted.totals,
            predicted.trace,
        )

    def test_a_report_says_that_its_gpus_are_virtual(self):
        assert dpdemo.run(gpus=[0, 1], virtual=True).virtual

    def test_there_are_two_virtual_gpus_where_none_are_named(self):
        assert list(dpdemo.run(virtual=True).devices) == ["cuda:0", "cuda:1"]

    def test_all_virtual_gpus_are_no_number(self):
        with pytest.raises(dpdemo.UsageError, match="expected a number of virtual GPUs, got `all`"):
            dpdemo.run(gpus="all", virtual=True)

    @pytest.mark.parametrize("virtual", [True, False])
    @pytest.mark.parametrize("gpus", [[0, 128], [0, 2**31 - 1], 129, 2**31 - 1])
    def test_no_gpu_is_named_that_pytorch_cannot_number(self, gpus, virtual):
        with pytest.raises(
            dpdemo.UsageError, match=r"expected (a whole number of at most 128|an ordinal from 0 to 127)"
        ):
            dpdemo.run(gpus=gpus, virtual=virtual)

    def test_there_are_as_many_virtual_gpus_as_the_highest_ordinal_asks_for(self):
        assert list(dpdemo.run(gpus=[5, 2], virtual=True).devices) == ["cuda:5", "cuda:2"]

    def test_a_count_means_the_first_gpus(self):
        assert list(dpdemo.run(gpus=3, virtual=True).devices) == ["cuda:0", "cuda:1", "cuda:2"]

    def test_several_replicas_on_one_gpu_are_told_apart(self):
        report = dpdemo.run(gpus=[0, 0, 0], batch_size=7, data_size=7, virtual=True)
        assert report.batches == dpdemo.simulate(gpus=[0, 0, 0], batch_size=7, data_size=7).batches

    def test_a_second_block_of_virtual_gpus_is_an_error(self):
        with dpdemo.virtual_gpus(2), pytest.raises(dpdemo.UsageError, match="2 virtual GPUs is open already"):
            dpdemo.run(gpus=3, virtual=True)

    def test_inside_a_block_a_plain_run_takes_its_gpus(self):
        with dpdemo.virtual_gpus(4):
            assert len(dpdemo.run().devices) == 4


@pytest.mark.usefixtures("own_models")
class TestTheUsersModel:
    @needs_no_gpu
    def test_a_replica_that_fails_is_named(self):
        with pytest.raises(
            dpdemo.RunError, match="ValueError in replica 0 on device 0: a batch too short"
        ) as caught:
            dpdemo.run(model="failing_models:FailsOnShortBatch", gpus=[0, 1], virtual=True)
        assert "failing_models.py:8 in forward" in str(caught.value)

    def test_a_forward_that_fails_names_batch_error_and_the_users_line(self):
        with pytest.raises(
            dpdemo.RunError, match="to take batch 4, got ValueError: a batch too short"
        ) as caught:
            dpdemo.run(model="failing_models:FailsOnShortBatch", gpus=None)
        assert "failing_models.py:8 in forward" in str(caught.value)
        assert caught.value.exit_code == 1

    def test_a_first_batch_that_does_not_fit_says_how_to_change_it(self):
        with pytest.raises(dpdemo.RunError, match="to take batch 1, got RuntimeError") as caught:
            dpdemo.run(model="failing_models:TakesEight", gpus=None)
        assert caught.value.hint == ("each sample is [5] of float32; input_size and dtype choose others")
        assert dpdemo.run(model="failing_models:TakesEight", gpus=None, input_size=8).totals.batches == 4

    def test_ctrl_c_keeps_the_batches_done_before_it(self):
        with pytest.raises(dpdemo.RunInterrupted) as caught:
            dpdemo.run(model="failing_models:StopsAtThird")
        report = caught.value.report
        assert report.partial
        assert report.totals.batches == 2


def test_progress_is_told_of_an_epoch_that_takes_long():
    calls = []
    dpdemo.run(data_size=600_000, progress=lambda done, total: calls.append((done, total)))
    assert calls
    assert calls == sorted(calls)
    assert {total for _, total in calls} == {20_000}


def test_the_memory_of_an_epoch_does_not_grow_with_its_data():
    import tracemalloc

    def peak(data_size):
        tracemalloc.start()
        dpdemo.run(data_size=data_size, batch_size=1000)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10_000)
    assert peak(1_000_000) < 2 * peak(10_000)


def test_the_loop_knows_nothing_of_the_split_rule(monkeypatch):
    """`run` reports observations: it works the same if the prediction is unavailable."""

    def unasked(*_):
        pytest.fail("run asked for a prediction")

    monkeypatch.setattr("dpdemo.arithmetic.chunk.split_batch", unasked)
    monkeypatch.setattr("dpdemo.splitting.predict.distribute_epoch", unasked)
    assert dpdemo.run().totals.samples == 100


@needs_gpu
class TestOnRealGPUs:
    @pytest.mark.parametrize("model", MODELS)
    def test_several_replicas_on_one_card_are_told_apart(self, model):
        report = dpdemo.run(model=model, gpus=[0, 0, 0], batch_size=30, data_size=100)
        assert report.batches == dpdemo.simulate(model=model, gpus=[0, 0, 0]).batches

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("dim", [0, 1])
    def test_one_card_takes_the_whole_batch(self, model, dim):
        report = dpdemo.run(model=model, gpus=[0], dim=dim)
        assert report.batches == dpdemo.simulate(model=model, gpus=[0], dim=dim).batches

    def test_all_visible_cards_are_used_when_none_is_named(self):
        assert len(dpdemo.run(batch_size=64, data_size=64).devices) == NUM_GPUS

    @pytest.mark.skipif(NUM_GPUS < 2, reason="fewer than two CUDA GPUs are visible on this machine")
    @pytest.mark.parametrize("output_device", [0, 1])
    def test_two_cards_split_the_batch(self, output_device):
        config = {"gpus": [1, 0], "output_device": output_device}
        assert dpdemo.run(**config).batches == dpdemo.simulate(**config).batches
