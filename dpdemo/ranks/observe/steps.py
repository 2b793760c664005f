"""Keep a ledger of a model's optimizer steps: a checksum after each, and what multiplied its gradients."""

import struct
import weakref
import zlib
from collections.abc import Iterable
from typing import Any

from dpdemo.ranks.events import Steps
from dpdemo.ranks.observe.notes import Notes
from dpdemo.ranks.observe.numbers import local, total, values

_IN_ONE_EVENT, _MAX_NAMES = 64, 256
_LOOKED_AT, _PROBES, _ALIKE = 64, 3, 4e-3


class StepNotes:
    """Notes the steps of one model, many in one event."""

    def __init__(self, notes: Notes, model: str) -> None:
        self.notes, self.model = notes, model
        self.first, self.at = 1, ""
        self.sums: list[int] = []
        self.scales: list[float] = []
        self.each: dict[str, int] = {}

    def add(self, at: str, parameters: Iterable[tuple[str, Any]], scale: float) -> None:
        """Add a step."""
        self.at = self.at or at
        self.each = {name: total(each) for name, each in parameters}
        self.sums.append(zlib.crc32(struct.pack(f"{len(self.each)}q", *self.each.values())))
        self.scales.append(scale)
        if len(self.sums) >= _IN_ONE_EVENT:
            self.flush()

    def flush(self, *, is_end: bool = False) -> None:
        """Write the steps that were not written yet; at the end with a checksum for each parameter."""
        each = dict(list(self.each.items())[:_MAX_NAMES]) if is_end else None
        scales = tuple(self.scales) if any(self.scales) else ()
        if self.sums or is_end:
            self.notes.write(Steps(self.model, self.first, self.at, tuple(self.sums), scales, each))
        self.first += len(self.sums)
        self.sums, self.scales = [], []


class GradientProbe:
    """Remembers some numbers of a gradient after backward, to see what multiplies it before the step."""

    def __init__(self) -> None:
        self.parameter: weakref.ref[Any] | None = None
        self.places: list[tuple[int, float]] = []

    def look(self, parameters: Iterable[Any]) -> None:
        """Remember some numbers of the first gradient that has any."""
        self.parameter, self.places = None, []
        for each in parameters:
            grad = each.grad
            if grad is None:
                continue
            found = [
                (place, number)
                for place, number in enumerate(values(local(grad), _LOOKED_AT))
                if number and number - number == 0
            ]
            if found:
                self.parameter, self.places = weakref.ref(each), found[:: max(1, len(found) // _PROBES)]
                return

    def factor(self) -> float:
        """Return by what all of these numbers were multiplied since, or 0 if they were not."""
        parameter = None if self.parameter is None else self.parameter()
        if parameter is None or parameter.grad is None:
            return 0.0
        now = values(local(parameter.grad), _LOOKED_AT)
        ratios = [now[place] / before for place, before in self.places if place < len(now)]
        if not ratios or max(ratios) - min(ratios) > _ALIKE * abs(max(ratios, key=abs)):
            return 0.0
        return ratios[0] if ratios[0] - ratios[0] == 0 else 0.0
