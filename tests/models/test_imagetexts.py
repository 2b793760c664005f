"""Models that read an image as words of a text: each text gets one, as long as the model makes it."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dpdemo
from dpdemo.models.inputs import drawing
from dpdemo.models.libraries import Inputs, InputSizes
from dpdemo.models.libraries.asked import inputs_asked
from dpdemo.models.libraries.build import make_library_model
from dpdemo.models.libraries.imagetexts import set_image_word
from dpdemo.models.user import find_object

WORD, WIDTH = 98, 8
TEXT = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 2048, "head_dim": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SEEN = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
CLIP = {"model_type": "clip_vision_model", **SEEN, "projection_dim": 32}
SIGLIP = {"model_type": "siglip_vision_model", **SEEN}
TILES = {"image_grid_pinpoints": [[32, 64], [64, 32], [64, 64]]}
CONFIGS = {
    "llava": {"text_config": {"model_type": "llama", **TEXT}, "vision_config": CLIP},
    "llava_next": {"text_config": {"model_type": "llama", **TEXT}, "vision_config": CLIP, **TILES},
    "paligemma": {
        "text_config": {"model_type": "gemma", **TEXT}, "projection_dim": 64, "hidden_size": 64,
        "vision_config": {**SIGLIP, "projection_dim": 64, "num_image_tokens": 16},
    },
    "gemma3": {
        "text_config": {"model_type": "gemma3_text", **TEXT, "sliding_window": 32}, "mm_tokens_per_image": 4,
        "vision_config": SIGLIP,
    },
    "mistral3": {
        "text_config": {"model_type": "mistral", **TEXT}, "vision_feature_layer": -1,
        "vision_config": {"model_type": "pixtral", **SEEN, "head_dim": 8},
    },
    "idefics3": {
        "text_config": {"model_type": "llama", **TEXT}, "scale_factor": 2,
        "vision_config": {"model_type": "idefics3_vision", **SEEN},
    },
}  # fmt: skip
PATCHES = {
    "text_config": {
        "model_type": "qwen2_vl_text", **TEXT,
        "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]},
    },
    "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 4},
}  # fmt: skip
WORDS = {"llava": 16, "llava_next": 88, "paligemma": 16, "gemma3": 4, "mistral3": 4, "idefics3": 4}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return a function that writes a small configuration of a type, and gives its path."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="transformers is not installed")

    def write(name):
        path = tmp_path / name / "config.json"
        path.parent.mkdir()
        marks = {"image_token_id" if name in {"idefics3", "qwen2_vl"} else "image_token_index": 127}
        path.write_text(json.dumps({"model_type": name, **CONFIGS.get(name, PATCHES), **marks}))
        return str(path)

    return write


def predicted(model, **given):
    return dpdemo.predict_memory(**{"gpus": 2, "batch_size": 4, "model": model} | given)


class _Reads(nn.Module):
    """A model that makes a word of each 16 pixels a side, and takes images of 64 alone."""

    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__()
        self.config, self.norm = config, nn.BatchNorm2d(3)
        self.words = nn.Embedding(99, WIDTH)

    def get_input_embeddings(self):
        return self.words

    def get_image_features(self, pixel_values):
        if pixel_values.shape[1:] not in {(3, 64, 64), (3, 32, 32)}:
            raise ValueError("no such image")
        rows, _, height, width = self.norm(pixel_values).shape
        return SimpleNamespace(pooler_output=[torch.rand(height * width // 256, WIDTH) for _ in range(rows)])

    def forward(self, input_ids, pixel_values=None, token_type_ids=None, labels=None):
        raise NotImplementedError


class _Flattens(_Reads):
    def forward(self, input_ids, pixel_values=None, image_grid_thw=None):
        raise NotImplementedError


def _config(**more):
    text = SimpleNamespace(vocab_size=99, max_position_embeddings=40)
    vision = SimpleNamespace(image_size=64)
    config = SimpleNamespace(
        text_config=text, vision_config=vision, model_type="x", image_token_id=WORD, **more
    )
    config.get_text_config = lambda **_: text
    return config


def asked(model_class=_Reads, sizes=None, **more):
    config = _config(**more)
    return inputs_asked("caption", config, model_class(config), sizes or InputSizes())


def test_as_many_words_stand_for_an_image_as_the_model_makes_of_one():
    inputs = asked()
    made = inputs(4)
    assert made["pixel_values"].shape == (4, 3, 64, 64)
    assert made["input_ids"].tolist() == [[WORD] * 16 + [3] * 24] * 4
    assert made["labels"].tolist() == [[-100] * 16 + [3] * 24] * 4
    assert made["token_type_ids"].tolist() == [[1] * 16 + [0] * 24] * 4
    assert not inputs.note


def test_a_smaller_image_is_fewer_words_and_a_text_may_be_as_long_as_is_asked():
    made = asked(sizes=InputSizes(seq_len=11, image_size=32))(2)
    assert made["pixel_values"].shape == (2, 3, 32, 32)
    assert made["input_ids"].tolist() == [[WORD] * 4 + [3] * 7] * 2


def test_a_text_without_room_for_its_image_is_told():
    with pytest.raises(
        dpdemo.UsageError, match=r"longer than the 16 tokens .* got 16 - at argument `seq_len`"
    ):
        asked(sizes=InputSizes(seq_len=16))


def test_an_image_that_the_model_does_not_take_is_told_in_its_words():
    with pytest.raises(
        dpdemo.UsageError, match=r"got 48 pixels a side: .*no such image.* - at argument `image_size`"
    ):
        asked(sizes=InputSizes(image_size=48))


def test_patches_of_a_whole_batch_are_left_out_and_that_is_said():
    inputs = asked(_Flattens)
    assert set(inputs(4)) == {"input_ids", "attention_mask", "labels"}
    assert inputs.note.startswith("Texts alone, without images: _Flattens takes the patches of all images")
    with pytest.raises(dpdemo.UsageError, match=r"image_grid_thw.* - at argument `image_size`"):
        asked(_Flattens, InputSizes(image_size=64))


def test_asking_for_the_words_leaves_no_trace():
    config = _config()
    model = _Reads(config)
    state = torch.random.get_rng_state()
    inputs_asked("caption", config, model, InputSizes())
    assert model.norm.num_batches_tracked == 0
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("named", [None, 99, 1000])
def test_a_word_that_there_is_stands_for_images(named):
    config = _config()
    config.image_token_id = named
    set_image_word(config)
    assert config.image_token_id == 98


def test_a_size_of_images_is_told_where_there_are_none():
    config = SimpleNamespace(vocab_size=99)
    config.get_text_config = lambda **_: config
    model = SimpleNamespace(main_input_name="input_ids", forward=lambda input_ids: input_ids)
    with pytest.raises(dpdemo.UsageError, match=r"takes images of a size, .* - at argument `image_size`"):
        inputs_asked("causal", config, model, InputSizes(image_size=8))


def test_sizes_are_told_where_the_model_is_ones_own():
    with pytest.raises(dpdemo.UsageError, match=r"sizes for the model of a library, .*`image_size`"):
        dpdemo.predict_memory(
            gpus=2, model="dpdemo.examples.pitfall:Net", input_sizes=InputSizes(image_size=8)
        )


def test_images_of_a_library_are_drawn_where_numbers_are_needed_always_the_same():
    draw = drawing(Inputs({"x": torch.empty(1, 3, device="meta"), "ids": torch.tensor([7])}))
    first, second = draw(4), draw(4)
    assert first["x"].device.type == "cpu"
    assert torch.equal(first["x"], second["x"])
    assert first["ids"].tolist() == [7] * 4


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_of_transformers_takes_the_batch_on_one_device(small, name):
    model, inputs = make_library_model("transformers", small(name), InputSizes(seq_len=128))
    made = drawing(inputs)(2)
    assert (made["input_ids"] == 127).sum(dim=1).tolist() == [WORDS[name]] * 2
    model(**made).loss.backward()
    seen = [parameter for key, parameter in model.named_parameters() if "vision" in key or "projector" in key]
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in seen)


@pytest.mark.parametrize("name", CONFIGS)
def test_images_without_numbers_take_the_memory_of_those_with(small, name):
    given = {
        "model": f"transformers:{small(name)}", "batch_size": 4, "input_sizes": InputSizes(seq_len=128),
        "gpus": 1 if name == "idefics3" else 2,  # whose replicas ask for a dtype that they have not
    }  # fmt: skip
    without, real = dpdemo.predict_memory(**given), dpdemo.predict_memory(**given, numbers=True)
    assert "pixel_values" in dict(without.inputs)
    assert [gpu.peak_bytes for gpu in without.gpus] == [gpu.peak_bytes for gpu in real.gpus]


def test_the_report_says_that_texts_are_alone(small):
    report = predicted(f"transformers:{small('qwen2_vl')}")
    assert set(dict(report.inputs)) >= {"input_ids", "labels"}
    assert "pixel_values" not in dict(report.inputs)
    assert [note for note in report.notes if "takes the patches of all images" in note]


def test_images_are_checked_with_numbers(small):
    model = find_object(f"transformers:{small('llava')}")
    report = dpdemo.check(model, gpus=2, batch_size=4)
    assert "DP401" in {
        finding.code for finding in report.findings
    }  # it ran, and gave a loss for each replica
