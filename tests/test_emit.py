"""The emitted training script: it runs under torchrun, and does what the config says."""

import runpy
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from ddpruns import environment

import dpdemo as api
from dpdemo.catalogue import MODELS, batched
from dpdemo.config import make_config
from dpdemo.emit import script, write_script


def config_of(**values):
    return make_config({"strategy": "ddp", **values})


def written(folder, config):
    path = folder / "train_ddp.py"
    write_script(config, path)
    return path


def train(path, ranks):
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", path],
        cwd=path.parent, env=environment(path.parent, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")
class TestUnderTorchrun:
    def test_it_takes_the_steps_and_samples_that_are_predicted(self, tmp_path):
        done = train(written(tmp_path, config_of()), 3)
        report = api.simulate(strategy="ddp", processes=3)
        assert done.returncode == 0, done.stderr
        assert done.stdout == (
            f"epoch 0: {report.totals.batches} steps, {report.distribution.drawn} samples drawn by 3 ranks\n"
        )

    def test_a_global_batch_is_shared_out(self, tmp_path):
        config = config_of(
            model="cnn", batch_size=12, batch_size_is="global", shuffle=True, sampler_drop_last=True,
            drop_last=True, dtype="float64",
        )  # fmt: skip
        done = train(written(tmp_path, config), 2)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "epoch 0: 8 steps, 96 samples drawn by 2 ranks\n"


@pytest.mark.parametrize("model", MODELS)
def test_every_builtin_model_takes_the_data_that_the_script_makes(model, tmp_path):
    made = runpy.run_path(str(written(tmp_path, config_of(model=model, data_size=4))))
    data = made["make_data"]()
    shapes = MODELS[model]
    assert data.shape == batched(shapes.input(5, 2), 4, 0)
    assert made["make_model"]()(data).shape == batched(shapes.output(5, 2), 4, 0)


def test_the_data_is_the_same_on_every_rank(tmp_path):
    path = str(written(tmp_path, config_of()))
    one, other = (runpy.run_path(path)["make_data"]() for _ in range(2))
    assert torch.equal(one, other)


def test_a_model_of_ones_own_is_imported_with_the_configs_values(tmp_path, monkeypatch):
    source = "from torch import nn\ndef make(input_size, output_size): return nn.Linear(input_size, 2)\n"
    (tmp_path / "own_net.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    made = runpy.run_path(str(written(tmp_path, config_of(model="own_net:make", input_size=3))))
    assert made["make_model"]()(made["make_data"]()).shape == (100, 2)


def test_the_script_names_itself_and_needs_no_dpdemo():
    text = script(config_of(), "mine.py")
    assert "torchrun --standalone --nproc-per-node 3 mine.py" in text
    assert "dpdemo" not in text


def test_a_batch_in_another_dimension_is_a_usage_error():
    with pytest.raises(api.UsageError, match="expected the batch in dimension 0"):
        script(config_of(dim=1))


def test_a_file_that_is_no_python_is_a_usage_error(tmp_path):
    with pytest.raises(api.UsageError, match=r"expected a file that ends in \.py, got 'train\.txt'"):
        write_script(config_of(), tmp_path / "train.txt")


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(api.RunError, match="expected a file to write, got 'No such file or directory'"):
        write_script(config_of(), tmp_path / "missing" / "train.py")
