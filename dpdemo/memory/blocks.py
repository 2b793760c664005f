"""The blocks of a model: the layer that it repeats, or the classes that a user names."""

import difflib
from collections import Counter
from collections.abc import Sequence

from torch import nn

from dpdemo.errors import UsageError

_MOST_NAMED = 6


def repeated_blocks(model: nn.Module) -> type[nn.Module] | None:
    """Return the class of the blocks that a model repeats: those of its list with the most parameters."""
    lists = [module for module in model.modules() if isinstance(module, (nn.ModuleList, nn.Sequential))]
    alike = [blocks for blocks in lists if _are_blocks(list(blocks))]
    if not alike:
        return None
    largest = max(alike, key=lambda blocks: sum(parameter.numel() for parameter in blocks.parameters()))
    return type(largest[0])


def _are_blocks(parts: list[nn.Module]) -> bool:
    is_alike = len(parts) > 1 and len({type(part) for part in parts}) == 1
    return is_alike and len(list(parts[0].modules())) > 2


def blocks_of(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """List the blocks of these classes, or those that the model repeats, in the model's order.

    Raises:
        UsageError: if the model has no module of a class.

    """
    inner = [module for module in model.modules() if module is not model]
    if not names:
        kind = repeated_blocks(model)
        return [] if kind is None else [module for module in inner if type(module) is kind]
    known = Counter(type(module).__name__ for module in inner)
    for name in names:
        if name not in known:
            raise _unknown_block(name, known)
    return [module for module in inner if type(module).__name__ in names]


def _unknown_block(name: str, known: Counter[str]) -> UsageError:
    near = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(f"{kind} ({number})" for kind, number in known.most_common(_MOST_NAMED))
    more = ", ..." if len(known) > _MOST_NAMED else ""
    return UsageError(
        f"expected the class of a module of the model, got {name}",
        key="blocks",
        hint=f"did you mean {near[0]}?" if near else f"the model has {listed}{more}",
    )


def inner_first(blocks: Sequence[nn.Module]) -> list[nn.Module]:
    """Sort blocks so that one inside another comes before it, and keep the order otherwise."""
    inside = {id(block): {id(each) for each in block.modules()} for block in blocks}

    def depth(block: nn.Module) -> int:
        return sum(id(block) in members for members in inside.values())

    return sorted(blocks, key=depth, reverse=True)
