"""`dpdemo memory`: what it is asked, its answer and its exit code."""

import json
import textwrap

import pytest
from jsonforms import read_json
from processes import needs_no_gpu

GPUS = ["--gpus", "4"]
SIZED = [*GPUS, "--gpu-memory", "24GiB"]


def test_a_number_of_gpus_in_the_config_will_do_and_is_named_when_it_is_bad(dpdemo, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("batch_size: 8\ngpus: 300\n")
    done = dpdemo("memory", "-c", path)
    assert done.code == 2
    assert f"got 300 - at {path}:2, key `gpus`" in done.err


@pytest.fixture(autouse=True)
def own_model(users_folder):
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

        class Decides(nn.Linear):
            def __init__(self):
                super().__init__(16, 4)

            def forward(self, x):
                x = super().forward(x)
                return x * 2 if x.sum() > 0 else x

        def batch(size):
            return {"x": torch.empty(size, 256)}
    """
    users_folder({"own.py": textwrap.dedent(text)})


WIDE = ["--model", "own:Wide", "--gpus", "2"]


@needs_no_gpu
def test_a_fitting_model_exits_with_0_and_reports_free_memory(dpdemo):
    done = dpdemo("memory", *WIDE, "--gpu-memory", "24GiB", "--input", "64x256")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Predicted: a training step of own:Wide, batch size 64, over 2 GPUs\n")
    assert "It fits: 23.3 GiB left on cuda:0, in " in done.out
    assert "a model that prints" not in done.out


@needs_no_gpu
def test_model_too_large_exits_with_1_and_names_the_gpu(dpdemo):
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
def test_fit_reports_the_largest_batch(dpdemo):
    options = [*WIDE, "--gpu-memory", "130MiB", "--reserve", "0", "--input", "2048x256"]
    assert dpdemo("memory", *options).code == 1
    done = dpdemo("memory", *options, "--fit", "-f", "json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    largest = found["fit"]["largest"]
    assert found["batch_size"] == largest < 2048
    for batch, answer in ((largest, "fits"), (largest + 1, "tight")):
        shown = dpdemo("memory", *options, "--batch-size", batch, "-f", "json").out
        assert json.loads(shown)["answer"] == answer
    said = " ".join(dpdemo("memory", *options, "--fit").out.split())
    assert f"Batch 2048 does not fit; the largest that does is {largest}, give or take " in said
    assert "at worst of 27 published cases of DistributedDataParallel" in said


@needs_no_gpu
def test_fit_exits_with_1_if_no_sample_fits(dpdemo):
    done = dpdemo("memory", *WIDE, "--gpu-memory", "70MiB", "--reserve", "0", "--input", "64x256", "--fit")
    assert done.code == 1
    assert "It does not fit, not even one sample: cuda:0 lacks " in " ".join(done.out.split())
    assert done.err == ""


@needs_no_gpu
def test_a_card_has_its_memory_and_its_workspaces_and_its_name_is_shown(dpdemo):
    done = dpdemo("memory", *WIDE, "--gpu", "t4", "--input", "64x256")
    assert done.code == 0
    assert "DataParallel on cuda:0–1 (T4-16GB)" in done.out
    found = seen(dpdemo, *WIDE, "--gpu", "t4", "--input", "64x256")
    assert found["gpus"][0]["parts_bytes"]["library_workspaces"] == 2 * 8_519_680
    assert found["card"] == "T4-16GB"


@needs_no_gpu
def test_wrong_default_input_is_bad_usage(dpdemo):
    done = dpdemo("memory", *WIDE, "--set", "input_size=5")
    assert done.code == 2
    assert "the model got one tensor of input_size numbers per row; give --input" in done.err


@needs_no_gpu
def test_a_decision_by_learned_numbers_is_refused_with_the_line_and_numbers_are_a_way_out(dpdemo):
    done = dpdemo("memory", "own:Decides", "--gpus", "2", "--input", "8x16")
    assert done.code == 1
    assert "own.py:" in done.err
    assert "hint: --numbers predicts with real numbers" in done.err
    found = seen(dpdemo, "own:Decides", "--gpus", "2", "--input", "8x16", "--numbers")
    assert found["gpus"][1]["peak_bytes"] > 0


def seen(dpdemo, *options):
    done = dpdemo("memory", *options, "-f", "json")
    assert (done.code, done.err) == (0, ""), done.err
    return read_json("memory", done.out)


@needs_no_gpu
def test_batch_size_is_the_first_shapes_by_default(dpdemo, tmp_path):
    shapes = ["--input", "x=64x256", "--input", "scale=1"]
    found = seen(dpdemo, *WIDE, *shapes)
    assert found["batch_size"] == found["config"]["batch_size"] == 64
    assert found["inputs"] == {"x": [64, 256], "scale": [1]}
    assert seen(dpdemo, *WIDE, *shapes, "--batch-size", "16")["inputs"] == {"x": [16, 256], "scale": [1]}
    (tmp_path / "own.yaml").write_text("batch_size: 12\n")
    assert seen(dpdemo, *WIDE, *shapes, "-c", "own.yaml")["inputs"]["x"] == [12, 256]


@needs_no_gpu
def test_model_that_needs_numbers_exits_with_1(dpdemo):
    done = dpdemo("memory", "--model", "own:Chooses", "--gpus", "2")
    assert (done.code, done.out) == (1, "")
    assert "Tensor.item" in done.err
    assert "own.py:19 in forward" in done.err
    assert "Traceback" not in done.err


@needs_no_gpu
def test_saving_prints_a_hint_unless_quiet(dpdemo, tmp_path):
    options = ["memory", *WIDE, "--input", "64x256", "--save", tmp_path / "memory.svg"]
    assert dpdemo(*options).err == f"hint: saved to {tmp_path}/memory.svg\n"
    assert (tmp_path / "memory.svg").read_text().startswith("<svg")
    assert dpdemo(*options, "--quiet").err == ""


@needs_no_gpu
def test_the_options_of_a_step_reach_it(dpdemo):
    step = [
        "--optimizer",
        "sgd",
        "--loss",
        "mse",
        "--zero-grad",
        "to-zero",
        "--amp",
        "--frees-output",
        "--fused",
    ]
    found = seen(dpdemo, *WIDE, "--inputs", "own:batch", "--batch-size", "10", *step)
    assert found["training"] == {
        "optimizer": "sgd", "loss": "mse", "amp": True, "inference": False, "zero_grad": "to-zero",
        "frees_output": True, "fused": True,
    }  # fmt: skip
    assert found["inputs"] == {"x": [10, 256]}
    assert seen(dpdemo, *WIDE, "--input", "8x256", "--inference")["training"]["inference"]


RANKS = ["own:Wide", "--gpus", "4", "--input", "64x256"]


@needs_no_gpu
def test_the_settings_of_a_strategy_reach_it(dpdemo):
    settings = ["--bucket-mb", "5", "--bucket-view", "--checkpoint", "own:batch", "--blocks", "Linear,Wide"]
    done = dpdemo("memory", *RANKS, "--strategy", "ddp", *settings, "-f", "json")
    assert "expected the class of a module of the model, got Wide" in done.err
    found = seen(dpdemo, *RANKS, "--strategy", "fsdp2", "--mixed", "bf16", "--offload")
    assert found["config"]["strategy"] == "fsdp2"
    assert (found["wrapping"]["mixed"], found["wrapping"]["offload"]) == ("bf16", True)
    assert {gpu["rows"] for gpu in found["gpus"]} == {64}


@needs_no_gpu
def test_several_strategies_share_the_batch_and_have_a_column_each(dpdemo):
    sized = [*RANKS, "--strategy", "dp,ddp,fsdp2", "--gpu-memory", "24GiB"]
    done = dpdemo("memory", *sized)
    assert (done.code, done.err) == (0, "")
    head = next(line for line in done.out.splitlines() if "FSDP2" in line)
    assert head.split() == ["DP", "DDP", "FSDP2"]
    assert "DistributedDataParallel fits: " in done.out
    found = json.loads(dpdemo("memory", *sized, "-f", "json").out)
    assert [report["gpus"][0]["rows"] for report in found["reports"]] == [16, 16, 16]


@needs_no_gpu
def test_no_strategy_that_fits_exits_with_1(dpdemo):
    done = dpdemo("memory", *RANKS, "--strategy", "ddp,fsdp2", "--gpu-memory", "32MiB", "-f", "json")
    assert done.code == 1
    assert "error: DistributedDataParallel does not fit: " in done.err


@needs_no_gpu
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--strategy fsdp", "expected some of dp, ddp, fsdp2, got 'fsdp' - at option `--strategy`"),
        ("--strategy ddp,ddp", "expected each strategy once, got ddp, ddp"),
        ("--strategy ddp --offload", "expected the strategy fsdp2, got ddp - at option `--offload`"),
        ("--offload", "expected the strategy fsdp2, got dp - at option `--offload`"),
        (
            "--strategy fsdp2 --checkpoint most",
            "or `pkg.mod:function`, got 'most' - at option `--checkpoint`",
        ),
        ("--strategy fsdp2 --gpus 1", "expected 2 ranks or more under fsdp2, got 1"),
    ],
)
def test_a_bad_strategy_is_bad_usage_with_its_option(dpdemo, words, message):
    done = dpdemo(
        "memory",
        "own:Wide",
        "--input",
        "64x256",
        *(words.split() if "--gpus" in words else [*words.split(), "--gpus", "4"]),
    )
    assert done.code == 2
    assert message in done.err
