"""The example configs: every one is read, predicted and, on the CPU, run."""

from pathlib import Path

import pytest

import dpdemo

CONFIGS = sorted((Path(__file__).parent.parent.parent / "configs").glob("*.yaml"))


def test_there_are_configs():
    assert len(CONFIGS) >= 9


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
class TestEachConfig:
    def test_begins_with_a_comment(self, path):
        assert path.read_text().startswith("# ")

    def test_is_predicted(self, path):
        config = dpdemo.load_config(path)
        report = dpdemo.simulate(path)
        assert report.totals.samples == config.data_size

    def test_runs_on_the_cpu_too(self, path):
        config = {"gpus": None, "output_device": None}
        assert dpdemo.run(path, **config).batches == dpdemo.simulate(path, **config).batches
