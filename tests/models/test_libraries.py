"""Models of libraries by name: they train under DataParallel without weights, a wrong name is an error."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dpdemo
from dpdemo.config.targets import parse_target
from dpdemo.models.inputs import batches_for, drawing
from dpdemo.models.libraries import Inputs, InputSizes
from dpdemo.models.libraries.asked import inputs_asked, set_image_token
from dpdemo.models.libraries.build import make_library_model
from dpdemo.models.libraries.sizes import all_sized, find_sized


def predicted(model, **given):
    return dpdemo.predict_memory(gpus=2, batch_size=4, model=model, **given)


@pytest.fixture
def _transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.parametrize("text", ["transformers:gpt2-xl", "timm:vit_tiny_patch16_224", "torchvision:swin_t"])
def test_a_target_may_name_a_librarys_model(text):
    library, _, name = text.partition(":")
    target = parse_target(text)
    assert (target.library, target.name) == (library, name)


def test_a_module_of_such_a_name_is_still_a_module():
    assert not parse_target("torchvision.models:resnet18").library


@pytest.mark.parametrize("name", ["gpt2-xl", "GPT2-XL", "meta-llama/Llama-2-7b-hf", "llama-2-7b-hf"])
def test_common_models_are_found_with_and_without_their_organisation(name):
    assert find_sized(name) in all_sized().values()
    assert find_sized("nothing") is None


@pytest.mark.usefixtures("_transformers")
@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("gpt2", 124.4), ("facebook/opt-125m", 125.2), ("bert-base-uncased", 109.5), ("roberta-base", 124.7),
        ("t5-small", 60.5), ("Qwen/Qwen2.5-0.5B", 494.0), ("EleutherAI/pythia-160m", 162.3),
        ("facebook/bart-base", 139.4), ("HuggingFaceTB/SmolLM2-135M", 134.5),
        ("deepseek-ai/DeepSeek-V2-Lite", 15706.5), ("facebook/esm2_t33_650M_UR50D", 651.0),
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
        dpdemo.UsageError, match=r"got 'gpt3-xl', which is not in the table .* at argument `model`"
    ) as told:
        predicted("transformers:gpt3-xl")
    assert "gpt2-xl" in told.value.hint


def test_a_library_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(dpdemo.UsageError, match="expected timm to be installed") as told:
        make_library_model("timm", "resnet18", InputSizes())
    assert told.value.hint == "pip install timm"


class _Compares(nn.Module):
    """A model that holds texts against images, by its forward alone."""

    main_input_name = "input_ids"

    def forward(self, input_ids, pixel_values=None, attention_mask=None, return_loss=None):
        raise NotImplementedError


class _Sees:
    main_input_name = "pixel_values_videos"

    def forward(self, pixel_values_videos):
        raise NotImplementedError


def asking(main, asked):
    """Make a model whose forward asks for `asked`, and names `main` as its main input."""
    forward = eval(f"lambda {asked}: None")  # noqa: S307 - a signature, written below
    return SimpleNamespace(main_input_name=main, forward=forward)


def _made(config, model, sizes=None, family="any"):
    config.get_text_config = lambda **_: getattr(config, "text_config", config)
    return inputs_asked(family, config, model, sizes or InputSizes())(4)


def _shapes(config, model, sizes=None, family="any"):
    made = _made(config, model, sizes, family)
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


def test_a_model_of_films_gets_them_under_the_name_that_it_asks_for():
    config = SimpleNamespace(frames_per_clip=16, crop_size=48, in_chans=3)
    assert _shapes(config, _Sees()) == {"pixel_values_videos": (4, 16, 3, 48, 48)}
    sized = _shapes(config, _Sees(), InputSizes(image_size=32))
    assert sized == {"pixel_values_videos": (4, 16, 3, 32, 32)}


def test_images_alone_are_no_film_and_a_film_has_a_label():
    config = SimpleNamespace(num_frames=16, image_size=56)
    images = asking("pixel_values", "pixel_values, labels=None")
    assert _shapes(config, images, family="image") == {"pixel_values": (4, 3, 56, 56), "labels": (4,)}
    assert _shapes(config, images, family="video") == {"pixel_values": (4, 16, 3, 56, 56), "labels": (4,)}


@pytest.mark.parametrize("where", ["vision_config", "backbone_config"])
def test_the_size_of_images_may_stand_in_a_configuration_inside(where):
    config = SimpleNamespace(**{where: SimpleNamespace(backbone_config=SimpleNamespace(image_size=[64, 32]))})
    model = asking("pixel_values", "pixel_values, input_points=None")
    assert _shapes(config, model) == {"pixel_values": (4, 3, 64, 32)}


def test_words_stand_for_an_image_where_a_model_wants_both():
    config = SimpleNamespace(
        text_config=SimpleNamespace(vocab_size=99, max_position_embeddings=9),
        vision_config=SimpleNamespace(image_size=32), image_token_id=98, num_query_tokens=4,
    )  # fmt: skip
    made = _made(config, asking("pixel_values", "pixel_values, input_ids"))
    assert made["pixel_values"].shape == (4, 3, 32, 32)
    assert made["input_ids"].tolist() == [[98] * 4 + [3] * 5] * 4
    both = "pixel_values=None, input_ids=None, image_embeds_position_mask=None"
    del config.image_token_id
    marked = _made(config, asking("pixel_values", both))["image_embeds_position_mask"]
    assert marked.tolist() == [[True] * 4 + [False] * 5] * 4


def test_images_of_unequal_sizes_come_as_patches_with_their_rows_and_columns():
    vision = SimpleNamespace(num_patches=256, num_channels=3, patch_size=16)
    model = asking("pixel_values", "pixel_values, pixel_attention_mask, spatial_shapes, labels=None")
    made = _made(SimpleNamespace(vision_config=vision), model, family="image")
    assert made["pixel_values"].shape == (4, 256, 768)
    assert made["pixel_attention_mask"].tolist() == [[1] * 256] * 4
    assert made["spatial_shapes"].tolist() == [[16, 16]] * 4


def test_a_text_is_as_long_as_a_models_positions_want():
    config = SimpleNamespace(vocab_size=99, max_text_len=7, max_position_embeddings=9)
    assert _shapes(config, asking("input_ids", "input_ids"))["input_ids"] == (4, 7)


def test_a_model_of_two_takes_what_its_first_takes():
    model = asking("inputs", "inputs=None, input_values=None, labels=None")
    model.encoder = SimpleNamespace(main_input_name="input_values")
    shapes = _shapes(SimpleNamespace(model_type="x"), model, family="speech")
    assert shapes == {"input_values": (4, 16000), "labels": (4, 10)}


def test_a_model_that_reads_images_as_tokens_of_a_text_needs_inputs_of_the_users_own():
    config = SimpleNamespace(vocab_size=99, max_position_embeddings=77, image_token_id=5)
    with pytest.raises(
        dpdemo.UsageError, match=r"^expected inputs of your own for _Compares, .* at argument `inputs`$"
    ):
        _made(config, _Compares())
    make = inputs_asked("any", config, _Compares(), InputSizes())
    with pytest.raises(dpdemo.UsageError, match=r"^expected inputs of your own for _Compares"):
        batches_for(_Compares(), None, make, None, 4).arguments(4)
    args, _ = batches_for(_Compares(), lambda rows: torch.ones(rows, 9), make, None, 4).arguments(4)
    assert args[0].shape == (4, 9)


@pytest.mark.parametrize("named", [None, 99, 1000])
def test_the_token_of_images_is_one_of_the_vocabulary(named):
    config = SimpleNamespace(vocab_size=99, image_token_id=named)
    config.get_text_config = lambda: config
    set_image_token(config)
    assert config.image_token_id == 98


def test_a_size_of_images_is_refused_where_there_are_none():
    model = asking("input_ids", "input_ids")
    with pytest.raises(dpdemo.UsageError, match=r"takes images of a size, .* - at argument `image_size`"):
        _made(SimpleNamespace(vocab_size=99), model, InputSizes(image_size=8), family="causal")


def test_sizes_are_refused_for_a_model_of_ones_own():
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


TEXT = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
}  # fmt: skip
IMAGE = {
    "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
}  # fmt: skip


@pytest.mark.usefixtures("_transformers")
def test_texts_and_images_of_the_users_own_train_such_a_model(tmp_path):
    llava = {"model_type": "llava", "text_config": TEXT, "vision_config": IMAGE, "image_token_index": 127}
    (tmp_path / "config.json").write_text(json.dumps(llava))
    name = f"transformers:{tmp_path / 'config.json'}"

    def batch(rows):
        ids = torch.tensor([[127] * 16 + [3] * 8] * rows)
        return {"input_ids": ids, "labels": ids, "pixel_values": torch.ones(rows, 3, 32, 32)}

    assert dict(predicted(name, inputs=batch).inputs)["pixel_values"] == (4, 3, 32, 32)
    with pytest.raises(
        dpdemo.UsageError, match=r"of your own for LlavaForConditionalGeneration.* `inputs`"
    ) as told:
        predicted(name)
    assert told.value.hint.startswith("inputs names a function")


@pytest.mark.usefixtures("_transformers")
@pytest.mark.parametrize("name", ["siglip2", "perceiver"])
def test_models_of_other_kinds_of_input_are_predicted(name):
    assert predicted(f"transformers:{name}").gpus[1].peak_bytes > 0


@pytest.mark.usefixtures("_transformers")
@pytest.mark.parametrize("name", ["clip", "siglip", "chinese_clip", "xclip", "videomae", "wav2vec2-bert"])
def test_models_of_two_kinds_of_input_and_of_films_are_predicted(name):
    assert predicted(f"transformers:{name}").gpus[1].peak_bytes > 0
