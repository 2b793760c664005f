"""The record of one kind of model that a program splits: its calls, rehearsals and failures."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch

from dpdemo.calls.tree import flatten
from dpdemo.calls.unseen import on_cpu, unseen
from dpdemo.checking.evidence import Cache, KeepingHook, Leaf, Probe, Reduction, Scan
from dpdemo.checking.recording.drafts import Draft
from dpdemo.checking.recording.scaling import Scales
from dpdemo.checking.source import calling_place
from dpdemo.models.frames import is_installed
from dpdemo.programs.rehearsal import Rehearsal
from dpdemo.results.check import CheckReport

MAX_ALIKE = 2
"""Kinds of calls that are rehearsed of one model, mode and batch size, such as sentences of many lengths."""
MAX_NOTES = 20  # notes that are kept: their words may be new at each step


class Notes:
    """Different notes, each once; further ones are only counted."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._num_more = 0

    def add(self, text: str) -> None:
        """Keep a note, and count how often it was made."""
        if text in self._texts or len(self._texts) < MAX_NOTES:
            self._texts[text] = self._texts.get(text, 0) + 1
        else:
            self._num_more += 1

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield each note and how often it was made, and at the end how many more there were."""
        yield from self._texts.items()
        if self._num_more:
            yield f"{self._num_more} more of this kind, in other words", 1


@dataclass(frozen=True)
class Kind:
    """The identity of a call: batch size, mode, the thread's settings, and the arguments."""

    setting: object
    arguments: tuple[Leaf, ...]
    has_gradients: bool = True

    def is_like(self, other: "Kind") -> bool:
        """Return whether another call differs in its numbers at most, as labels do from batch to batch."""
        return self.setting == other.setting and self.shapes == other.shapes

    @property
    def shapes(self) -> tuple[object, ...]:
        """The arguments without their numbers."""
        return tuple((leaf.path, leaf.type, leaf.shape, leaf.dtype, leaf.device) for leaf in self.arguments)


@dataclass
class Subject:
    """The record of one kind of wrapped model."""

    scan: Scan
    split_by: str = ""  # the function by which the program splits, where it makes no DataParallel object
    rehearsed: dict[Kind, Rehearsal] = field(default_factory=dict)
    told: set[Kind] = field(default_factory=set)
    met_another: set[Kind] = field(default_factory=set)
    seen: set[Kind] = field(default_factory=set)
    probes: dict[tuple[Kind, object], tuple[Probe, ...]] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)
    unchecked: Notes = field(default_factory=Notes)
    reductions: dict[Kind, set[Reduction]] = field(default_factory=dict)
    kept: dict[KeepingHook, None] = field(default_factory=dict)
    caches: dict[Cache, None] = field(default_factory=dict)

    def take_rehearsal(self, kind: Kind) -> Rehearsal:
        """Hand out what the rehearsal of a kind saw, once: it is reported with one call."""
        if not self.has_news(kind):
            return Rehearsal()
        self.told.add(kind)
        return self.rehearsed[kind]

    def has_news(self, kind: Kind) -> bool:
        """Return whether a rehearsal was not handed out yet; a kind's first call may have had none."""
        return kind in self.rehearsed and kind not in self.told

    def all_probes(self) -> Iterator[Probe]:
        """List the observed calls, and the program's use of its losses if it ran backward."""
        for (kind, _), probes in self.probes.items():
            reductions = tuple(sorted(self.reductions.get(kind, ())))
            is_known = bool(reductions) or not kind.has_gradients
            yield from (replace(probe, is_programs=is_known, reductions=reductions) for probe in probes)

    def notes_of(self, report: CheckReport) -> Iterator[str]:
        """Note what was not checked or not compared, how often, and the reason if it is known."""
        notes = [*self._all_notes(), *report.notes]
        yield from notes
        if self.probes and report.ok and not report.compared and not notes:
            yield f"{self.scan.model}: no call had its results compared with those of one GPU"

    def _all_notes(self) -> Iterator[str]:
        yield from (text for text, _ in self.notes.items())
        for why, number in self.unchecked.items():
            calls = "1 call was" if number == 1 else f"{number} calls were"
            yield f"{self.scan.model}: {calls} not compared with one GPU, because {why}"
        if self.met_another - self.rehearsed.keys():
            yield (
                f"{self.scan.model} was called while another thread's call was compared, "
                "and not compared itself"
            )

    def note(self, what: str) -> None:
        """Note, once, what could not be looked at."""
        self.notes.add(f"{self.scan.model} {what}")

    def follow_losses(
        self, draft: Draft, kind: Kind, scales: Scales, unharmed: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Note with what weights the program goes backward through its replicas' losses, such as mean()'s."""
        first = next(iter(self.rehearsed.get(kind, Rehearsal()).probes), None)
        path = first.comparison.loss_path if first is not None else None
        if path is None or draft.gathered is None:
            return
        losses = dict(flatten(draft.gathered[0])).get(path)
        known = self.reductions.setdefault(kind, set())
        if isinstance(losses, torch.Tensor) and losses.requires_grad and len(known) < MAX_ALIKE:

            def note(gradient: torch.Tensor) -> None:
                with unharmed():
                    place = calling_place()
                    with unseen(gradient):
                        numbers = on_cpu(gradient).double().flatten().tolist()
                    weights = tuple(number / scales.factor for number in numbers)
                    known.add(Reduction(weights, is_librarys=place is not None and is_installed(place.file)))

            losses.register_hook(note)  # type: ignore[no-untyped-call] # PyTorch's own
