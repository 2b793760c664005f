"""Inputs as specs, and the texts that a model of transformers is trained on."""

import math
from typing import Any

import torch

from dpdemo.models.libraries import InputSizes

_SEQ_LEN = 512
WORD = 3
"""An id past most special tokens."""

Spec = dict[str, tuple[tuple[int, ...], float | None]]
"""By name: the shape of one row, and the number that fills it; None is a tensor of floats without numbers."""


def fill(spec: Spec, rows: int) -> dict[str, torch.Tensor]:
    """Make a batch of a spec: bool, int64 or float32 tensors, as their numbers are."""
    return {
        name: torch.empty(rows, *shape, device="meta")
        if number is None
        else torch.full((rows, *shape), number, device="cpu")
        for name, (shape, number) in spec.items()
    }


def text_config(config: Any) -> Any:
    """Return the part of a transformers configuration that describes texts; the decoder's, if it has one."""
    try:
        return config.get_text_config()
    except ValueError:
        return config.get_text_config(decoder=True)


def of_texts(family: str, config: object, sizes: InputSizes) -> Spec:
    """Return texts that repeat one word, unmasked, with the labels of a training step.

    Args:
        family: the model's task, as `huggingface.py` names it.
        config: the model's configuration.
        sizes: how large the inputs are.

    """
    text = text_config(config)
    word = min(WORD, (getattr(text, "vocab_size", None) or 100) - 1)
    length = (sizes.seq_len or getattr(config, "max_text_len", None) or length_of(text),)
    given: Spec = {"input_ids": (length, word), "attention_mask": (length, 1)}
    if family in {"causal", "masked", "seq2seq", "caption"}:
        return given | {"labels": (length, word)}
    return given | ({"labels": ((), 0)} if family == "text class" else {})


def length_of(text: object) -> int:
    """Return the default length of a text: 512, or as many positions as its configuration has."""
    if getattr(text, "axial_pos_embds", False):  # Reformer's
        return math.prod(text.axial_pos_shape)  # type: ignore[attr-defined] # it trains on no other
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
