"""Models of transformers by their configuration, without weights, and the inputs that training gives them."""

import difflib
import inspect
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dpdemo.errors import UsageError
from dpdemo.models.libraries import Inputs, InputSizes
from dpdemo.models.libraries.sizes import SIZES, find_sized

_Named = Callable[[int], dict[str, Any]]
_SEQ_LEN, _SECONDS_OF_SOUND, _RATE = 512, 1, 16000
_LETTERS = 32  # of a model that hears letters, as Wav2Vec2Config has it
_WORD = 3  # past the ids of most special tokens
_FAMILIES = (
    ("seq2seq", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
    ("speech", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES"),
    ("image", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"),
    ("masked", "MODEL_FOR_MASKED_LM_MAPPING_NAMES"),
    ("causal", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
    ("sound", "MODEL_FOR_CTC_MAPPING_NAMES"),
    ("sound class", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES"),
    ("segmentation", "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES"),
    ("any", "MODEL_MAPPING_NAMES"),
)
"""What models are for, with transformers' table of the classes that have a loss for it."""


def make_model(name: str, sizes: InputSizes, where: str) -> tuple[nn.Module, Inputs]:
    """Build the model of a name, a type or a config.json, and the function that makes its inputs.

    Raises:
        UsageError: if there is no such model, or transformers cannot build it.

    """
    config = _config(name, where)
    family, kind = _class_of(config, where)
    if kind.config_class is config.sub_configs.get("text_config"):  # the text half of a model for more
        config = config.get_text_config()
    for part in (config, _of_text(config)):
        part.use_cache = False  # as in training; and DataParallel cannot gather a cache
        if family in {"sound class", "image"} and getattr(part, "pad_token_id", 0) is None:
            part.pad_token_id = 0
    if getattr(config, "decoder_start_token_id", 0) is None or not hasattr(config, "decoder_start_token_id"):
        config.decoder_start_token_id = 0
    if family == "sound" and getattr(config, "vocab_size", 0) is None:
        config.vocab_size = _LETTERS
    if config.is_encoder_decoder and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    try:
        model = kind(config)
    except Exception as error:
        raise UsageError(
            f"expected a model of transformers, got {type(error).__name__} from {kind.__name__}: {error} - "
            f"at {where}",
            hint="does its configuration leave values open? write them in a file: transformers:config.json",
        ) from error
    install_hooks(model)
    return model, _inputs(family, config, model, sizes)


def _of_text(config: Any) -> Any:
    """Return the part of a configuration that describes texts; the decoder's, if it has one."""
    try:
        return config.get_text_config()
    except ValueError:
        return config.get_text_config(decoder=True)


def _config(name: str, where: str) -> Any:
    from transformers import CONFIG_MAPPING, AutoConfig

    if name.endswith(".json") or Path(name).is_dir():
        return _read(lambda: AutoConfig.from_pretrained(name), name, where)
    sized = find_sized(name)
    if sized is not None:
        return CONFIG_MAPPING[sized.model_type](**sized.sizes)
    if name in CONFIG_MAPPING:
        return _default(CONFIG_MAPPING[name], where)
    known = [*SIZES, *CONFIG_MAPPING.keys()]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    hint += "any other is named by its config.json: transformers:path/to/config.json"
    return _read(lambda: AutoConfig.from_pretrained(name, local_files_only=True), name, where, hint)


def _default(kind: Any, where: str) -> Any:
    try:
        return kind()
    except Exception as error:
        raise UsageError(
            f"expected a model type with sizes of its own, got {type(error).__name__} from {kind.__name__}: "
            f"{error} - at {where}",
            hint="write them in a file: transformers:config.json",
        ) from error


def _read(read: Callable[[], object], name: str, where: str, hint: str = "") -> object:
    try:
        return read()
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"expected a model of transformers, got {name!r}, which is not in the table of common ones, no "
            f"model type, and neither a file nor in the local cache - at {where}"
            if hint
            else f"expected a config.json of transformers, got {error} - at {where}",
            hint=hint,
        ) from error


def _class_of(config: Any, where: str) -> tuple[str, Any]:
    """Choose the class that trains: the one that the configuration names, else the first with a loss."""
    import transformers
    from transformers.models.auto import modeling_auto

    tables = {family: getattr(modeling_auto, table) for family, table in _FAMILIES}
    named = (getattr(config, "architectures", None) or [None])[0]
    for family, table in tables.items():
        found = table.get(config.model_type)
        found = found[0] if isinstance(found, (list, tuple)) else found
        if found is not None and (named in {None, found} or family == "any"):
            name = named or found
            return _family_of(name, family), getattr(transformers, name)
    if named is not None and hasattr(transformers, named):
        return _family_of(named, "any"), getattr(transformers, named)
    raise UsageError(f"expected a model type with a class to train, got {config.model_type!r} - at {where}")


def _family_of(name: str, family: str) -> str:
    ends = {"ForSequenceClassification": "text class", "ForCausalLM": "causal", "LMHeadModel": "causal",
            "ForTokenClassification": "masked", "ForMaskedLM": "masked"}  # fmt: skip
    return next((kind for end, kind in ends.items() if name.endswith(end)), family)


def install_hooks(model: nn.Module) -> bool:
    """Let transformers put its hooks for outputs into a model now, as the first call of it alone does.

    A model whose first call is under DataParallel gets them from each replica, in dicts that replicas share,
    and then sees each output several times: on real GPUs too.

    Args:
        model: any model; one that holds none of transformers' is left as it is.

    Returns:
        Whether there were hooks to put in.

    """
    if "transformers" not in sys.modules:
        return False
    try:
        from transformers.utils.output_capturing import maybe_install_capturing_hooks
    except ImportError:  # before transformers 5
        return False
    without = [
        module
        for module in model.modules()
        if hasattr(module, "_can_record_outputs")
        and not getattr(module, "_output_capturing_hooks_installed", False)
    ]
    for module in without:
        maybe_install_capturing_hooks(module)
    return bool(without)


def _inputs(family: str, config: Any, model: Any, sizes: InputSizes) -> Inputs:
    main = getattr(model, "main_input_name", "")
    asked = inspect.signature(model.forward).parameters
    if main.startswith("pixel_values") or (family in {"image", "segmentation"} and main != "input_ids"):
        return _of_images(family, config, main, sizes)
    if family in {"speech", "sound", "sound class"}:
        return _of_sounds(family, config, model)
    is_read_as_text = hasattr(config, "image_token_id") or hasattr(config, "image_token_index")
    has_sizes = hasattr(config, "vision_config") or hasattr(config, "image_size")
    if "pixel_values" in asked and has_sizes and not is_read_as_text:
        return _of_pairs(config, asked, sizes)
    return _of_texts("text class" if family == "image" else family, config, sizes)


def _of_pairs(config: Any, asked: Collection[str], sizes: InputSizes) -> _Named:
    """Make texts and images, which models like CLIP hold against each other: their loss is of all pairs."""
    texts = _of_texts("any", config, sizes)
    images = _of_images("any", getattr(config, "vision_config", config), "pixel_values", sizes)

    def make(rows: int) -> dict[str, object]:
        both = {**texts(rows), **images(rows)}
        return both | {"return_loss": True} if "return_loss" in asked else both

    return make


def _of_texts(family: str, config: object, sizes: InputSizes) -> _Named:
    text = _of_text(config)
    words = getattr(text, "vocab_size", None) or 100
    positions = getattr(text, "max_position_embeddings", None) or _SEQ_LEN
    length = sizes.seq_len or (min(_SEQ_LEN, positions) if positions > 0 else _SEQ_LEN)

    def make(rows: int) -> dict[str, torch.Tensor]:
        ids = torch.full((rows, length), min(_WORD, words - 1))
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if family in {"causal", "masked", "seq2seq"}:
            return given | {"labels": ids.clone()}
        return given | ({"labels": torch.zeros(rows, dtype=torch.int64)} if family == "text class" else {})

    return make


def _of_images(family: str, config: object, name: str, sizes: InputSizes) -> _Named:
    """Make images, or films where the configuration says of how many images: under the name that is asked."""
    backbone = getattr(config, "backbone_config", None)
    found: Any = sizes.image_size or _first(config, "image_size", "crop_size")
    found = found or getattr(backbone, "image_size", None) or 224
    height, width = (found, found) if isinstance(found, int) else tuple(found)
    channels = _first(config, "num_channels", "in_chans") or 3
    frames = _first(config, "num_frames", "frames_per_clip")
    shape = (*((frames,) if frames else ()), channels, height, width)

    def make(rows: int) -> dict[str, torch.Tensor]:
        label = (rows, height, width) if family == "segmentation" else (rows,)
        pixels = torch.empty(rows, *shape, device="meta")
        is_labelled = family in {"image", "segmentation"}  # boxes are lists of dicts, which nothing can split
        return {name if name.startswith("pixel_values") else "pixel_values": pixels} | (
            {"labels": torch.zeros(label, dtype=torch.int64)} if is_labelled else {}
        )

    return make


def _first(config: object, *names: str) -> Any:
    """Return the first value that a configuration, or that of its encoder, has under any of these names."""
    parts = (config, getattr(config, "encoder_config", None))
    found = [getattr(part, name, None) for part in parts for name in names]
    return next((value for value in found if value), None)


def _of_sounds(family: str, config: Any, model: Any) -> _Named:
    name = getattr(model, "main_input_name", "input_values")
    bins = _first(config, "num_mel_bins", "feature_projection_input_dim", "input_dim") or 80
    if name == "input_values":
        shape: tuple[int, ...] = (_SECONDS_OF_SOUND * _RATE,)
        if config.model_type == "audio-spectrogram-transformer":
            shape = (config.max_length, bins)
    elif config.model_type == "whisper":
        shape = (bins, 2 * config.max_source_positions)
    else:
        shape = (_SECONDS_OF_SOUND * 100, bins)

    def make(rows: int) -> dict[str, torch.Tensor]:
        labels = torch.zeros(rows, dtype=torch.int64)
        if family != "sound class":
            labels = torch.ones(rows, 10, dtype=torch.int64)
        return {name: torch.empty(rows, *shape, device="meta"), "labels": labels}

    return make
