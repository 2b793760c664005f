"""The sizes of the models of transformers that are named most often, as their published config.json says.

`sizes.json` has each model's type, and what differs from the defaults of its configuration class. A model
that is missing is read from the local cache of Hugging Face, or from a config.json.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class ModelSizes(NamedTuple):
    """A model's type in transformers, and its sizes."""

    model_type: str
    sizes: dict[str, Any]


@cache
def all_sized() -> dict[str, ModelSizes]:
    """Return the models by name."""
    table = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return {name: ModelSizes(*row) for name, row in table.items()}


def find_sized(name: str) -> ModelSizes | None:
    """Return the sizes of a model by its name, with or without the organisation before it, in any case."""
    wanted = name.lower()
    for known, sized in all_sized().items():
        if wanted in {known.lower(), known.rpartition("/")[2].lower()}:
            return sized
    return None
