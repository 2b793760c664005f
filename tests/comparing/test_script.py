"""The emitted training script: it runs under torchrun, and does what the config says."""

import ast
import runpy
import sys

import pytest
import torch
import torch.distributed as dist
from ddpruns import environment
from processes import run

import dpdemo as api
from dpdemo.comparing.script import script
from dpdemo.config.catalogue import MODELS, batched
from dpdemo.config.load import make_config
from dpdemo.models.modules import Placement, build


def config_of(**values):
    return make_config({"strategy": "ddp", **values})


def written(folder, config):
    path = folder / "train_ddp.py"
    path.write_text(script(config, path.name), encoding="utf-8")
    return path


def train(path, ranks):
    return run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", path],
        cwd=path.parent, env=environment(path.parent, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES=""),
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


@pytest.mark.parametrize("model", MODELS)
def test_every_model_of_the_script_computes_what_the_builtin_one_does(model, tmp_path):
    config = config_of(model=model, data_size=4)
    made = runpy.run_path(str(written(tmp_path, config)))
    with torch.no_grad():
        scripts = made["make_model"]().eval()
        cpu = torch.device("cpu")
        own = build(config, Placement(Wrapped, cpu, cpu)).model.eval()
        for ours, theirs in zip(own.parameters(), scripts.parameters(), strict=True):
            theirs.copy_(ours)
        data = made["make_data"]()
        torch.testing.assert_close(scripts(data), own(data), rtol=0, atol=0)


class Wrapped(torch.nn.Module):
    """What a built-in model is wrapped in: as DataParallel names it, on one device."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


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


@pytest.mark.parametrize(
    "name",
    ['a\n"""\nprint("pwned")\n#.py', 'a"""; print("pwned"); """.py', "a{b}.py", "back\\slash\\.py", "ö.py"],
)
def test_the_name_of_the_file_never_becomes_code(name):
    tree = ast.parse(script(config_of(), name))
    assert [type(node).__name__ for node in tree.body].count("Expr") == 1
    assert "torchrun --standalone" in ast.get_docstring(tree)
    assert "pwned" not in ast.unparse(tree.body[1:])


OWN = """
from torch import nn
class Outer:
    @staticmethod
    def make(input_size): return nn.Linear(input_size, 2)
class Net(nn.Linear):
    def __init__(self): super().__init__(5, 2)
ready = nn.Linear(5, 2)
def pair(): return nn.Linear(5, 2), None
"""


@pytest.mark.parametrize(
    "target",
    [
        "own_nets:Outer.make",
        "own_nets.Net",
        "own_nets:ready",
        "own_nets:pair",
        "own_nets.py:Outer.make",
        "own_nets.py",
    ],
)
def test_every_form_of_a_target_is_found_by_the_script(target, tmp_path, monkeypatch):
    (tmp_path / "own_nets.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path(str(written(tmp_path, config_of(model=target))))
    assert made["make_model"]()(made["make_data"]()).shape == (100, 2)
