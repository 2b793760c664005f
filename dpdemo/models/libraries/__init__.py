"""Models of the common libraries by name, without weights: `transformers:gpt2-xl`, `torchvision:resnet50`.

    build.py         the model that a name means
    sizes.py         the sizes of the models that people name most often, so that no network is needed
    huggingface.py   transformers: an architecture by its configuration
    asked.py         the inputs that a model of transformers asks for
    texts.py         texts; imagetexts.py: texts with an image in them
    images.py        torchvision and timm

Each returns what a user's own factory may: the model, and a function from a batch size to its inputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Named = Callable[[int], dict[str, Any]]
"""Makes the arguments of a batch by name."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Makes the arguments of a batch; `note` is what a person should know of them."""

    make: Callable[[int], object]
    note: str = ""

    def __call__(self, rows: int) -> object:
        """Make a batch of so many rows."""
        return self.make(rows)


@dataclass(frozen=True, slots=True)
class InputSizes:
    """How large the inputs of a library's model are; None is what the model was made for.

    `seq_len` counts tokens of a text, `image_size` pixels of an image's sides.
    """

    seq_len: int | None = None
    image_size: int | None = None
