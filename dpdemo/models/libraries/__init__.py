"""Models of the common libraries by name, without weights: `transformers:gpt2-xl`, `torchvision:resnet50`.

    build.py         the model of a name
    sizes.py         the sizes of the most common models, so that no network is needed
    huggingface.py   transformers: an architecture by its configuration
    asked.py         the inputs of a model of transformers
    texts.py         texts; imagetexts.py: texts with an image in them
    images.py        torchvision and timm

Each returns the model and a function from a batch size to its inputs, as a user's own factory may.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Named = Callable[[int], dict[str, Any]]
"""Makes the arguments of a batch by name."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Makes the arguments of a batch; `note` tells the user about them."""

    make: Callable[[int], object]
    note: str = ""

    def __call__(self, rows: int) -> object:
        """Make a batch of `rows` rows."""
        return self.make(rows)


@dataclass(frozen=True, slots=True)
class InputSizes:
    """Sizes of the inputs of a library's model; None is the model's own.

    `seq_len` counts tokens of a text, `image_size` pixels of an image's sides.
    """

    seq_len: int | None = None
    image_size: int | None = None
