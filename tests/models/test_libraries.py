"""Models of libraries by name: they train under DataParallel without weights, and a wrong name is told."""

from types import SimpleNamespace

import pytest

import dpdemo
from dpdemo.config.targets import parse_target
from dpdemo.models.libraries import InputSizes
from dpdemo.models.libraries.build import make_library_model
from dpdemo.models.libraries.huggingface import _inputs
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


class _Compares:
    """A model that holds texts against images, by its forward alone."""

    main_input_name = "input_ids"

    def forward(self, input_ids, pixel_values, attention_mask=None, return_loss=None):
        raise NotImplementedError


class _Sees:
    main_input_name = "pixel_values_videos"

    def forward(self, pixel_values_videos):
        raise NotImplementedError


def _shapes(config, model, sizes=None):
    config.get_text_config = lambda **_: getattr(config, "text_config", config)
    made = _inputs("any", config, model, sizes or InputSizes())(4)
    return {name: value if isinstance(value, bool) else tuple(value.shape) for name, value in made.items()}


def test_a_model_that_compares_gets_texts_and_images_and_gives_its_loss():
    config = SimpleNamespace(
        text_config=SimpleNamespace(vocab_size=99, max_position_embeddings=77),
        vision_config=SimpleNamespace(image_size=64, num_channels=3),
    )
    both = {"input_ids": (4, 77), "attention_mask": (4, 77), "return_loss": True}
    assert _shapes(config, _Compares()) == {**both, "pixel_values": (4, 3, 64, 64)}
    config.vision_config.num_frames = 8
    assert _shapes(config, _Compares())["pixel_values"] == (4, 8, 3, 64, 64)
    small = SimpleNamespace(vocab_size=99, max_position_embeddings=40, image_size=32)
    assert _shapes(small, _Compares())["pixel_values"] == (4, 3, 32, 32)
    config.image_token_id = 5  # then images stand in the text
    assert "pixel_values" not in _shapes(config, _Compares())


def test_a_model_of_films_gets_them_under_the_name_that_it_asks_for():
    config = SimpleNamespace(frames_per_clip=16, crop_size=48, in_chans=3)
    assert _shapes(config, _Sees()) == {"pixel_values_videos": (4, 16, 3, 48, 48)}
    sized = _shapes(config, _Sees(), InputSizes(image_size=32))
    assert sized == {"pixel_values_videos": (4, 16, 3, 32, 32)}


@pytest.mark.usefixtures("_transformers")
@pytest.mark.parametrize("name", ["clip", "siglip", "chinese_clip", "xclip", "videomae", "wav2vec2-bert"])
def test_models_of_two_kinds_of_input_and_of_films_are_predicted(name):
    assert predicted(f"transformers:{name}").gpus[1].peak_bytes > 0
