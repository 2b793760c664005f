"""Models of the common libraries by name, without weights: `transformers:gpt2-xl`, `torchvision:resnet50`.

    build.py         the model of a name; torchvision's and timm's images
    sizes.py         the sizes of the most common models, so that no network is needed
    huggingface.py   transformers: an architecture by its configuration
    asked.py         the inputs of a model of transformers
    texts.py         texts

Each returns the model and a function from a batch size to its inputs, as a user's own factory may.
"""

from dataclasses import dataclass
from typing import Any

import torch

from dpdemo.calls.tree import rebuild

Row = dict[str, Any]
"""One sample by name: tensors with a batch dimension of 1; floats without numbers are on the meta device."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Makes a batch by repeating one sample."""

    row: Row | torch.Tensor

    def __call__(self, rows: int) -> Any:
        """Make a batch of `rows` rows."""

        def repeated(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if leaf.is_meta:
                return torch.ones(rows, *leaf.shape[1:], dtype=leaf.dtype, device="meta")
            return leaf.repeat_interleave(rows, dim=0)

        return rebuild(self.row, repeated)


@dataclass(frozen=True, slots=True)
class InputSizes:
    """Sizes of the inputs of a library's model; None is the model's own.

    `seq_len` counts tokens of a text, `image_size` pixels of an image's sides.
    """

    seq_len: int | None = None
    image_size: int | None = None
