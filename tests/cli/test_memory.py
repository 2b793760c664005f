"""`dpdemo memory`: what it is asked, its answer and its exit code."""

import csv
import io
import json
import subprocess
import sys
import textwrap

import pydantic
import pytest
import torch

from dpdemo.config import Config
from dpdemo.render.memory.wire import MemoryReportJson
from dpdemo.render.schemas import schema_of

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="real GPUs are visible on this machine")

GPUS = ["--gpus", "4"]
SIZED = [*GPUS, "--gpu-memory", "24GiB"]
BAD = [
    ([], "expected a number of GPUs, got none - at option `--gpus` hint: say how many: --gpus 4"),
    (["--gpus", "all"], "expected a count such as 4, got `all` - at option `--gpus`"),
    (["--gpus", "0"], "expected a count of 1 or more, got 0 - at option `--gpus`"),
    (["--gpus", "129"], "expected at most 128 virtual GPUs, got 129 - at option `--gpus`"),
    (["--gpus", "0,200"], "expected at most 128 virtual GPUs, got 201 - at option `--gpus`"),
    ([*GPUS, "--gpu-memory", "24"], "got '24' - at option `--gpu-memory` hint: with its unit it is 24GiB"),
    ([*GPUS, "--gpu-memory", "24GB"], "got '24GB' - at option `--gpu-memory` hint: memory is sold in"),
    ([*GPUS, "--gpu-memory", "24 GiB"], "got '24 GiB' - at option `--gpu-memory` hint: write it with"),
    ([*GPUS, "--gpu-memory", "-1GiB"], "expected a size such as 24GiB or 512MiB, got '-1GiB' - at option"),
    ([*GPUS, "--gpu-memory", "0GiB"], "expected a size such as 24GiB or 512MiB, got '0GiB' - at option"),
    ([*GPUS, "--gpu-memory", "lots"], "got 'lots' - at option `--gpu-memory` hint: units are KiB, MiB"),
    ([*GPUS, "--gpu-memory", ""], "got '' - at option `--gpu-memory`"),
    ([*GPUS, "--gpu-memory", "1GiB,,1GiB,1GiB"], "got '' - at option `--gpu-memory`"),
    ([*GPUS, "--gpu-memory", "1GiB,2GiB"], "one for each of the 4 GPUs, got 2 sizes - at option"),
    ([*GPUS, "--gpu-memory", ",".join(["1GiB"] * 5)], "one for each of the 4 GPUs, got 5 sizes - at option"),
    ([*GPUS, "--fit"], "expected what each GPU can hold, got nothing - at option `--gpu-memory`"),
    ([*SIZED, "--input", "8x5", "--inputs", "a:b"], "got both - at options `--input` and `--inputs`"),
    ([*SIZED, "--input", "8by5"], "expected [NAME=]SHAPE[:TYPE[<N]] such as 32x128"),
    ([*SIZED, "--input", "8x5:int9"], "hint: types are float"),
    ([*SIZED, "--input", "0x5"], "expected a batch of 1 or more, got '0x5' - at option `--input`"),
    ([*SIZED, "--inputs", "nothing"], "`pkg.mod:function`, got 'nothing' (text) - at option `--inputs`"),
    ([*SIZED, "--inference", "--optimizer", "sgd"], "got both - at options `--inference` and `--optimizer`"),
    ([*SIZED, "--inference", "--optimizer", "none"], "got both - at options `--inference` and `--optimizer`"),
    ([*SIZED, "--inference", "--loss", "mean"], "got both - at options `--inference` and `--loss`"),
    ([*SIZED, "--loss", "cros-entropy"], "(text) - at option `--loss` hint: did you mean `cross-entropy`?"),
    ([*SIZED, "--loss", "mod.fn"], "or `pkg.mod:function`, got 'mod.fn' (text) - at option `--loss`"),
    ([*SIZED, "--optimizer", "lion"], "'lion' is not one of 'none', 'sgd', 'momentum', 'adam', 'adamw'"),
    ([*SIZED, "--format", "transcript"], "'transcript' is not one of 'table', 'json', 'csv', 'markdown'"),
    ([*SIZED, "--save", "memory.pdf"], "expected a file ending in .svg, .html, .txt, .json, .csv or .md"),
    ([*SIZED, "--strategy", "ddp"], "No such option: --strategy"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), BAD, ids=[" ".join(options)[:50] for options, _ in BAD])
def test_bad_usage_is_said_with_exit_code_2_and_nothing_on_stdout(dpdemo, options, said):
    done = dpdemo("memory", *options)
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "options", [["--gpu-memory", "lots"], ["--fit"], ["--input", "x"], ["--loss", "none"], []], ids=" ".join
)
def test_bad_usage_loads_no_torch_and_nothing_that_draws(options):
    given = [*GPUS, *options] if options else []
    code = f"""
import sys
sys.argv = ["dpdemo", "memory", *{given!r}]
from dpdemo.cli import main
try:
    main()
except SystemExit as stop:
    print(stop.code, "torch" in sys.modules, "rich" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False False\n"


def test_a_number_of_gpus_in_the_config_will_do_and_is_named_when_it_is_bad(dpdemo, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("batch_size: 8\ngpus: 300\n")
    done = dpdemo("memory", "-c", path)
    assert done.code == 2
    assert f"got 300 - at {path}:2, key `gpus`" in done.err


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """A module of a user's own, `own.py` in the current folder."""
    text = """
        import torch
        from torch import nn

        class Wide(nn.Module):
            def __init__(self, width=4096):
                super().__init__()
                self.fc = nn.Linear(256, width)
                print("a model that prints")

            def forward(self, x, scale=None):
                return self.fc(x)

        class Chooses(nn.Linear):
            def __init__(self):
                super().__init__(5, 2)

            def forward(self, x):
                return super().forward(x) if x.sum().item() > 0 else x

        def batch(size):
            return {"x": torch.empty(size, 256)}
    """
    (tmp_path / "own.py").write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("own", None)


WIDE = ["--model", "own:Wide", "--gpus", "2"]


@needs_no_gpu
def test_a_model_that_fits_exits_with_0_and_says_what_is_left(dpdemo):
    done = dpdemo("memory", *WIDE, "--gpu-memory", "24GiB", "--input", "64x256")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Predicted: a training step of own:Wide, batch size 64, over 2 GPUs\n")
    assert "It fits: 23.9 GiB left on cuda:0, in " in done.out
    assert "a model that prints" not in done.out


@needs_no_gpu
def test_a_model_that_does_not_fit_exits_with_1_and_names_gpu_bytes_and_phase(dpdemo):
    done = dpdemo("memory", *WIDE, "--gpu-memory", "80MiB", "--input", "64x256")
    assert done.code == 1
    assert "It does not fit: cuda:0 lacks " in done.out
    assert done.err == "hint: --fit finds the largest batch that fits\n"


@needs_no_gpu
@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_form_without_words_has_the_reason_on_stderr(dpdemo, form):
    done = dpdemo("memory", *WIDE, "--gpu-memory", "80MiB", "--input", "64x256", "-f", form)
    assert done.code == 1
    assert "error: It does not fit: cuda:0 lacks " in done.err
    assert "false" in done.out


@needs_no_gpu
def test_one_command_says_that_a_batch_does_not_fit_and_which_is_the_largest_that_does(dpdemo):
    options = [*WIDE, "--gpu-memory", "100MiB", "--input", "2048x256"]
    assert dpdemo("memory", *options).code == 1
    done = dpdemo("memory", *options, "--fit", "-f", "json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    largest = found["fit"]["largest"]
    assert found["batch_size"] == largest < 2048
    for batch, code in ((largest, 0), (largest + 1, 1)):
        assert dpdemo("memory", *options, "--batch-size", batch, "-f", "csv").code == code
    said = " ".join(dpdemo("memory", *options, "--fit").out.split())
    assert (
        f"Batch 2048 does not fit; the largest that does is {largest}: at {largest + 1} cuda:0 lacks" in said
    )


@needs_no_gpu
def test_where_not_even_one_sample_fits_the_search_exits_with_1_and_says_what_is_lacking(dpdemo):
    done = dpdemo("memory", *WIDE, "--gpu-memory", "70MiB", "--input", "64x256", "--fit")
    assert done.code == 1
    assert "It does not fit, not even one sample: cuda:0 lacks " in " ".join(done.out.split())
    assert done.err == ""


@needs_no_gpu
def test_each_gpu_may_have_a_size_of_its_own(dpdemo):
    done = dpdemo("memory", *WIDE, "--gpu-memory", "80MiB,1GiB", "--input", "64x256", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [int(row["capacity_bytes"]) for row in rows] == [80 * 2**20, 2**30]
    assert [row["fits"] for row in rows] == ["false", "true"]
    assert done.code == 1


def seen(dpdemo, *options):
    done = dpdemo("memory", *options, "-f", "json")
    assert (done.code, done.err) == (0, ""), done.err
    adapter = pydantic.TypeAdapter(MemoryReportJson)
    assert json.loads(adapter.dump_json(adapter.validate_json(done.out, strict=True))) == json.loads(done.out)
    return json.loads(done.out)


@needs_no_gpu
def test_the_batch_size_is_that_of_the_first_shape_unless_the_user_says_another(dpdemo, tmp_path):
    shapes = ["--input", "x=64x256", "--input", "scale=1"]
    found = seen(dpdemo, *WIDE, *shapes)
    assert found["batch_size"] == found["config"]["batch_size"] == 64
    assert found["inputs"] == {"x": [64, 256], "scale": [1]}
    assert seen(dpdemo, *WIDE, *shapes, "--batch-size", "16")["inputs"] == {"x": [16, 256], "scale": [1]}
    (tmp_path / "own.yaml").write_text("batch_size: 12\n")
    assert seen(dpdemo, *WIDE, *shapes, "-c", "own.yaml")["inputs"]["x"] == [12, 256]


@needs_no_gpu
def test_inputs_come_from_a_function_of_the_users_own(dpdemo):
    found = seen(dpdemo, *WIDE, "--inputs", "own:batch", "--batch-size", "10")
    assert found["inputs"] == {"x": [10, 256]}
    assert [gpu["rows"] for gpu in found["gpus"]] == [5, 5]
    assert [gpu["capacity_bytes"] for gpu in found["gpus"]] == [None, None]


@needs_no_gpu
@pytest.mark.parametrize(("optimizer", "times"), [("none", 0), ("sgd", 0), ("momentum", 1), ("adamw", 2)])
def test_an_optimizer_holds_its_state_beside_the_parameters(dpdemo, optimizer, times):
    found = seen(dpdemo, *WIDE, "--input", "64x256", "--optimizer", optimizer)
    parts = found["gpus"][0]["parts_bytes"]
    assert parts["parameters"] == (256 + 1) * 4096 * 4
    assert parts["optimizer_state"] // parts["parameters"] == times
    assert found["training"]["optimizer"] == optimizer


@needs_no_gpu
def test_inference_holds_neither_gradients_nor_optimizer_state(dpdemo):
    (first, *_) = seen(dpdemo, *WIDE, "--input", "64x256", "--inference")["gpus"]
    assert first["parts_bytes"]["gradients"] == first["parts_bytes"]["optimizer_state"] == 0
    assert first["phase"] in {"forward", "gather", "replicate", "scatter"}


@needs_no_gpu
def test_a_model_that_needs_numbers_is_told_so_with_exit_code_1(dpdemo):
    done = dpdemo("memory", "--model", "own:Chooses", "--gpus", "2")
    assert (done.code, done.out) == (1, "")
    assert "Tensor.item" in done.err
    assert "own.py:19 in forward" in done.err
    assert "Traceback" not in done.err


@needs_no_gpu
def test_a_report_is_saved_and_said_so_unless_quiet(dpdemo, tmp_path):
    options = ["memory", *WIDE, "--input", "64x256", "--save", tmp_path / "memory.svg"]
    assert dpdemo(*options).err == f"hint: saved to {tmp_path}/memory.svg\n"
    assert (tmp_path / "memory.svg").read_text().startswith("<svg")
    assert dpdemo(*options, "--quiet").err == ""


@needs_no_gpu
def test_a_pipe_gets_plain_text_of_80_columns(program):
    done = program("memory", *SIZED, NO_COLOR="", COLUMNS="80")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@needs_no_gpu
def test_every_built_in_model_has_its_memory_predicted(dpdemo):
    for model in ("linear", "partial", "hybrid", "cnn", "rnn", "transformer"):
        found = seen(dpdemo, *SIZED, "--model", model)
        assert found["fits"], model
        assert sum(gpu["rows"] for gpu in found["gpus"]) == found["batch_size"] == Config().batch_size


def test_the_published_schema_is_that_of_the_report(dpdemo):
    assert json.loads(dpdemo("schema", "memory").out) == schema_of("memory")
