"""The texts that a model of transformers is trained on, by the sizes of its config."""

import math
from typing import Any

import torch

from dpdemo.models.libraries import InputSizes, Named

_SEQ_LEN = 512
WORD = 3  # past the ids of most special tokens


def text_config(config: Any) -> Any:
    """Return the part of a configuration that describes texts; the decoder's, if it has one.

    Args:
        config: a configuration of transformers.

    """
    try:
        return config.get_text_config()
    except ValueError:
        return config.get_text_config(decoder=True)


def of_texts(family: str, config: object, sizes: InputSizes) -> Named:
    """Make texts of words that are all one, none of them masked, with the labels that training has.

    Args:
        family: what the model is for, as `huggingface.py` names it.
        config: the model's configuration.
        sizes: how large the inputs are.

    """
    text = text_config(config)
    words = getattr(text, "vocab_size", None) or 100
    length = sizes.seq_len or getattr(config, "max_text_len", None) or length_of(text)

    def make(rows: int) -> dict[str, torch.Tensor]:
        ids = torch.full((rows, length), min(WORD, words - 1))
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if family in {"causal", "masked", "seq2seq", "caption"}:
            return given | {"labels": ids.clone()}
        return given | ({"labels": torch.zeros(rows, dtype=torch.int64)} if family == "text class" else {})

    return make


def length_of(text: object) -> int:
    """Return how many words a text has where nobody says: 512, or what the model has places for.

    Args:
        text: the configuration for texts.

    """
    if getattr(text, "axial_pos_embds", False):  # Reformer's
        return math.prod(text.axial_pos_shape)  # type: ignore[attr-defined] # it trains on no other
    positions = getattr(text, "max_position_embeddings", None) or _SEQ_LEN
    return min(_SEQ_LEN, positions) if positions > 0 else _SEQ_LEN


def first(config: object, *names: str) -> Any:
    """Return the first value that a configuration, or one inside it, has under any of these names.

    Args:
        config: the configuration.
        names: in the order in which they are looked for.

    """
    inner = [
        getattr(config, part, None)
        for part in ("encoder_config", "encoder", "vision_config", "backbone_config")
    ]
    parts = (config, *inner, *(getattr(part, "backbone_config", None) for part in inner))
    found = [getattr(part, name, None) for part in parts for name in names]
    return next((value for value in found if value), None)
