"""Models of libraries by name: they train under DataParallel without weights, and a wrong name is told."""

import pytest

import dpdemo
from dpdemo.config.targets import parse_target
from dpdemo.models.libraries import InputSizes
from dpdemo.models.libraries.build import make_library_model
from dpdemo.models.libraries.sizes import SIZES, find_sized


def predicted(model, **given):
    return dpdemo.predict_memory(gpus=2, batch_size=4, model=model, **given)


@pytest.fixture
def _transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.parametrize("text", ["transformers:gpt2-xl", "timm:vit_tiny_patch16_224", "torchvision:swin_t"])
def test_a_target_may_name_a_librarys_model(text):
    library, _, name = text.partition(":")
    target = parse_target(text, "argument TARGET")
    assert (target.library, target.name) == (library, name)


def test_a_module_of_such_a_name_is_still_a_module():
    assert not parse_target("torchvision.models:resnet18", "argument TARGET").library


@pytest.mark.parametrize("name", ["gpt2-xl", "GPT2-XL", "meta-llama/Llama-2-7b-hf", "llama-2-7b-hf"])
def test_common_models_are_found_with_and_without_their_organisation(name):
    assert find_sized(name) in SIZES.values()
    assert find_sized("nothing") is None


@pytest.mark.usefixtures("_transformers")
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("gpt2", 124.4), ("facebook/opt-125m", 125.2), ("bert-base-uncased", 109.5), ("roberta-base", 124.7),
        ("t5-small", 60.5), ("Qwen/Qwen2.5-0.5B", 494.0), ("EleutherAI/pythia-160m", 162.3),
        ("facebook/bart-base", 139.4), ("HuggingFaceTB/SmolLM2-135M", 134.5),
    ],
)  # fmt: skip
def test_a_model_of_the_table_has_the_parameters_that_are_published(name, millions):
    report = predicted(f"transformers:{name}", input_sizes=InputSizes(seq_len=16))
    assert report.num_parameters / 1e6 == pytest.approx(millions, rel=0.006)
    assert report.training.loss == "output.loss"
    assert dict(report.inputs)["input_ids"] == (4, 16)


@pytest.mark.usefixtures("_transformers")
def test_a_name_that_is_not_known_is_told_with_near_ones():
    with pytest.raises(
        dpdemo.UsageError, match=r"got 'gpt3-xl', which is not in the table .* at key `model`"
    ) as told:
        predicted("transformers:gpt3-xl")
    assert "gpt2-xl" in told.value.hint


def test_a_library_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(dpdemo.UsageError, match="expected timm to be installed") as told:
        make_library_model("timm", "resnet18", InputSizes(), "argument TARGET")
    assert told.value.hint == "pip install timm"
