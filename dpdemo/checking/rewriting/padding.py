"""Results as long as the longest of their chunk: padded to the longest of all before they are joined."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dpdemo.checking.repair import Repair


class Ragged(NamedTuple):
    """A part of the result that is longer in one replica than in another."""

    dim: int
    """On which it is."""
    rank: int
    """How many dimensions it has."""
    sizes: Sequence[int]
    """In each replica."""


_CLASS = """class Padded(nn.DataParallel):
    def gather(self, outputs, output_device):
{lines}
        return super().gather(outputs, output_device)

model = Padded(model)"""


_OTHERS = "   # one GPU has other numbers there: let nothing read them"


def padded_before_gather(ragged: Mapping[str, Ragged], fillings: Mapping[str, str]) -> Repair | None:
    """Write the line that wraps a model, and a wrapper in its place that pads what differs.

    Args:
        ragged: the parts of the result, by path.
        fillings: what one GPU has there, as code; "" where that is not one value, and zeros must do.

    Returns:
        None where a part lies deeper in the result than in a tuple or a dict.

    """
    lines = []
    for path, part in ragged.items():
        found = re.fullmatch(r"\[(\d+|'\w+')\]|", path)
        if found is None:
            return None
        at = f"one{path}".replace("'", '"')
        lines.append(f"        longest = max({at}.size({part.dim}) for one in outputs)")
        sides = "0, " * (2 * (part.rank - 1 - part.dim))
        fill = fillings.get(path, "0")
        value = f", value={fill}" if fill not in ("", "0", "0.0", "False") else ""
        padded = f"nn.functional.pad({at}, ({sides}0, longest - {at}.size({part.dim})){value})"
        if path.startswith("['"):
            key = path[1:-1].replace("'", '"')
            padded = f"{{**one, {key}: {padded}}}"
        elif path:
            index = int(found[1])
            padded = f"(*one[:{index}], {padded}, *one[{index + 1}:])"
        lines.append(f"        outputs = [{padded} for one in outputs]{_OTHERS if fill == '' else ''}")
    return Repair(None, "model = nn.DataParallel(model)", _CLASS.format(lines="\n".join(lines)))
