"""Models of transformers by their configuration, without weights, and the inputs that training gives them."""

import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from dpdemo.errors import UsageError
from dpdemo.models.libraries import InputSizes
from dpdemo.models.libraries.asked import inputs_asked, set_image_token
from dpdemo.models.libraries.sizes import all_sized, find_sized
from dpdemo.models.libraries.texts import text_config

_LETTERS = 32  # of a model that hears letters, as Wav2Vec2Config has it
_FAMILIES = (
    ("seq2seq", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
    ("speech", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES"),
    ("image", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"),
    ("masked", "MODEL_FOR_MASKED_LM_MAPPING_NAMES"),
    ("causal", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
    ("sound", "MODEL_FOR_CTC_MAPPING_NAMES"),
    ("sound class", "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES"),
    ("segmentation", "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES"),
    ("video", "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES"),
    ("caption", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"),
    ("any", "MODEL_MAPPING_NAMES"),
    ("any", "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES"),
    ("any", "MODEL_FOR_KEYPOINT_DETECTION_MAPPING_NAMES"),
    ("any", "MODEL_FOR_IMAGE_MATTING_MAPPING_NAMES"),
)
"""Tasks of models, with transformers' table of the classes that have a loss for each."""


def make_model(name: str, sizes: InputSizes) -> tuple[nn.Module, Callable[[int], object]]:
    """Build the model of a name, a type or a config.json, and the function that makes its inputs.

    Raises:
        UsageError: if the model does not exist, or transformers cannot build it.

    """
    config = _config(name)
    family, kind = _class_of(config)
    if kind.config_class is config.sub_configs.get("text_config"):  # the text half of a model for more
        config = config.get_text_config()
    for part in (config, text_config(config)):
        part.use_cache = False  # as in training; and DataParallel cannot gather a cache
        if family in {"sound class", "image"} and getattr(part, "pad_token_id", 0) is None:
            part.pad_token_id = 0
    if getattr(config, "decoder_start_token_id", 0) is None or not hasattr(config, "decoder_start_token_id"):
        config.decoder_start_token_id = 0
    if family == "sound" and getattr(config, "vocab_size", 0) is None:
        config.vocab_size = _LETTERS
    set_image_token(config)
    if config.is_encoder_decoder and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    try:
        model = kind(config)
    except Exception as error:
        raise UsageError(
            f"expected a model of transformers, got {type(error).__name__} from {kind.__name__}: {error}",
            hint="does its configuration leave values open? write them in a file: transformers:config.json",
        ) from error
    install_hooks(model)
    return model, inputs_asked(family, config, model, sizes)


def _config(name: str) -> Any:
    from transformers import CONFIG_MAPPING, AutoConfig

    if name.endswith(".json") or Path(name).is_dir():
        return _read(lambda: AutoConfig.from_pretrained(name), name)
    sized = find_sized(name)
    if sized is not None:
        return CONFIG_MAPPING[sized.model_type](**sized.sizes)
    if name in CONFIG_MAPPING:
        return _default(CONFIG_MAPPING[name])
    known = [*all_sized(), *CONFIG_MAPPING.keys()]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    hint += "any other is named by its config.json: transformers:path/to/config.json"
    return _read(lambda: AutoConfig.from_pretrained(name, local_files_only=True), name, hint)


def _default(kind: Any) -> Any:
    try:
        return kind()
    except Exception as error:
        raise UsageError(
            f"expected a model type with sizes of its own, got {type(error).__name__} from {kind.__name__}: "
            f"{error}",
            hint="write them in a file: transformers:config.json",
        ) from error


def _read(read: Callable[[], object], name: str, hint: str = "") -> object:
    try:
        return read()
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"expected a model of transformers, got {name!r}, which is not in the table of common ones, no "
            f"model type, and neither a file nor in the local cache"
            if hint
            else f"expected a config.json of transformers, got {error}",
            hint=hint,
        ) from error


def _class_of(config: Any) -> tuple[str, Any]:
    """Choose the class that trains: the one that the configuration names, else the first with a loss."""
    import transformers
    from transformers.models.auto import modeling_auto

    named = (getattr(config, "architectures", None) or [None])[0]
    for family, table in _FAMILIES:
        found = getattr(modeling_auto, table, {}).get(config.model_type)
        found = found[0] if isinstance(found, (list, tuple)) else found
        if found is not None and (named in {None, found} or family == "any"):
            return _family_of(named or found, family), getattr(transformers, named or found)
    if named is not None and hasattr(transformers, named):
        return _family_of(named, "any"), getattr(transformers, named)
    raise UsageError(f"expected a model type with a class to train, got {config.model_type!r}")


def _family_of(name: str, family: str) -> str:
    ends = {"ForSequenceClassification": "text class", "ForCausalLM": "causal", "LMHeadModel": "causal",
            "ForTokenClassification": "masked", "ForMaskedLM": "masked"}  # fmt: skip
    return next((kind for end, kind in ends.items() if name.endswith(end)), family)


def install_hooks(model: nn.Module) -> bool:
    """Put transformers' hooks for outputs into a model, as its first call outside DataParallel does.

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
