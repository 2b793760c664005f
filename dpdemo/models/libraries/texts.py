"""The tensors of one sample, and the texts that a model of transformers is trained on."""

from typing import Any

import torch

from dpdemo.models.libraries import InputSizes, Row

_SEQ_LEN = 512
WORD = 3
"""An id past most special tokens."""


def floats(*shape: int) -> torch.Tensor:
    """Return one sample's floats, without numbers; no zeros, since Idefics takes black images for padding."""
    return torch.ones(1, *shape, device="meta")


def filled(number: float, *shape: int) -> torch.Tensor:
    """Return one sample filled with a number, of the number's type."""
    return torch.full((1, *shape), number, device="cpu")


def text_config(config: Any) -> Any:
    """Return the part of a transformers configuration that describes texts; the decoder's, if it has one."""
    try:
        return config.get_text_config()
    except ValueError:
        return config.get_text_config(decoder=True)


def of_texts(family: str, config: object, sizes: InputSizes) -> Row:
    """Return a text that repeats one word, unmasked, with the labels of a training step.

    Args:
        family: the model's task, as `huggingface.py` names it.
        config: the model's configuration.
        sizes: how large the inputs are.

    """
    text = text_config(config)
    word = min(WORD, (getattr(text, "vocab_size", None) or 100) - 1)
    length = sizes.seq_len or getattr(config, "max_text_len", None) or length_of(text)
    row = {"input_ids": filled(word, length), "attention_mask": filled(1, length)}
    if family in {"causal", "masked", "seq2seq", "caption"}:
        row["labels"] = filled(word, length)
    elif family == "text class":
        row["labels"] = filled(0)
    return row


def length_of(text: object) -> int:
    """Return the default length of a text: 512, or as many positions as its configuration has."""
    positions = getattr(text, "max_position_embeddings", None) or _SEQ_LEN
    return min(_SEQ_LEN, positions) if positions > 0 else _SEQ_LEN


def first(config: object, *names: str) -> Any:
    """Return the first value that a configuration, or one inside it, has under any of these names."""
    inner = [
        getattr(config, part, None)
        for part in ("encoder_config", "encoder", "vision_config", "backbone_config")
    ]
    parts = (config, *inner, *(getattr(part, "backbone_config", None) for part in inner))
    found = [getattr(part, name, None) for part in parts for name in names]
    return next((value for value in found if value), None)
