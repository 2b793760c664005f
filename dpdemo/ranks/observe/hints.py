"""Advice on PyTorch's errors about models that ranks train together, with the program's own names."""

import re
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from dpdemo.ranks.observe import ADDED
from dpdemo.ranks.observe.training import TrainingNotes

_MAX_NAMES = 8
_OF_WRAPPER = re.compile(
    r"'(?:DistributedDataParallel|FullyShardedDataParallel)' object has no attribute '(\w+)'"
)


def hints(models: TrainingNotes, error: BaseException) -> list[str]:
    """Name the parameters that PyTorch's error gives by number, and what to do."""
    text = str(error)
    lacking = _OF_WRAPPER.search(text)
    if isinstance(error, AttributeError) and lacking is not None:
        return [f"The wrapper passes on calls, not attributes: model.module.{lacking[1]}"]
    if "Expected to have finished reduction" not in text:
        return []
    words = text.partition("did not receive grad for rank")[2].partition(":")[2].split()
    numbers = [int(word) for word in words if word.isdigit()]
    names: list[str] = []
    modules: list[Any] = list(models.by_module) if numbers else []
    for module in modules:
        if isinstance(module, DistributedDataParallel):
            parameters, _ = module._build_params_for_reducer()  # type: ignore[no-untyped-call]
            by_id = {id(each): name for name, each in module.module.named_parameters()}
            names += [by_id[id(parameters[at])] for at in numbers if at < len(parameters)]
    added = [name for model in models.models for name in model.added()[:_MAX_NAMES]]
    if added:
        return [f"{', '.join(added)} {ADDED}"]
    named = f"Parameters without a gradient: {', '.join(names)}. " if names else ""
    return [f"{named}Use them in the loss, take them out, or pass find_unused_parameters=True."]
