"""Weights by speed: said, or measured on the devices at hand."""

import pytest

import dpdemo
from dpdemo.config.load import make_config
from dpdemo.reports.devices import Devices
from dpdemo.running.speeds import relative_speeds, with_measured_speeds


def test_the_fastest_is_1_and_what_hardly_differs_is_equal():
    assert relative_speeds([2.0, 2.05, 4.0, 1000.0]) == (1.0, 1.0, 0.5, 0.01)


def test_speeds_that_are_said_are_not_measured():
    config = make_config({"gpus": 3, "weights": "auto", "speeds": [1, 1, 0.5]})
    assert with_measured_speeds(config, Devices.of("cuda", range(3))) is config
    assert dpdemo.run(config, virtual=True).batches == dpdemo.simulate(gpus=3, weights=[2, 2, 1]).batches


@pytest.mark.parametrize("model", ["linear", "partial", "hybrid", "rnn"])
def test_each_device_is_timed_with_the_model_itself(model):
    """On virtual GPUs, which have some speed or other: what is measured is no matter here, that it is, is."""
    config = make_config({"gpus": [1, 0, 1], "weights": "auto", "model": model, "batch_size": 6})
    with dpdemo.virtual_gpus(2):
        speeds = with_measured_speeds(config, Devices.of("cuda", (1, 0, 1))).speeds
    assert len(speeds) == 3
    assert max(speeds) == 1
    assert speeds[0] == speeds[2]
    assert all(0 < speed <= 1 for speed in speeds)


def test_virtual_gpus_and_previews_have_no_speed_and_ask_for_it():
    for ask in (dpdemo.simulate, lambda **config: dpdemo.run(**config, virtual=True)):
        with pytest.raises(dpdemo.UsageError, match="got `auto` alone") as caught:
            ask(gpus=3, weights="auto")
        assert "--weights auto --speeds 1,1,0.5" in caught.value.hint
