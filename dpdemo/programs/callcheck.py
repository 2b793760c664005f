"""Checking DataParallel's calls as a program of the user's makes them: what `dpdemo exec --check` builds on.

Every call is watched. The first one of each kind is rehearsed as well, just before it is made: on copies, on
one GPU and under DataParallel, to find silent mistakes too (`rehearsal.py`).
"""

import contextlib
import threading
import traceback
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dpdemo.calls.live import Splitter
from dpdemo.checking.doctor import end_of_program
from dpdemo.checking.engine import judge
from dpdemo.checking.evidence import Call, Event, Evidence, Probe, Scan, Single, first_line
from dpdemo.checking.observing.caches import caches_of
from dpdemo.checking.observing.hooks import changed, reaches_of
from dpdemo.checking.observing.leaves import describe_all, flatten_arguments
from dpdemo.checking.observing.scan import scan
from dpdemo.checking.precedence import in_order
from dpdemo.checking.recording.drafts import Draft, wrapped_or_not
from dpdemo.checking.recording.inside import here
from dpdemo.checking.recording.scaling import Scales
from dpdemo.checking.recording.steps import CallRecorder
from dpdemo.checking.registry import choose
from dpdemo.checking.running.building import watching_loads
from dpdemo.programs.rehearsal import Rehearsal, planned_call, rehearse
from dpdemo.programs.subjects import MAX_ALIKE, Kind, Notes, Subject
from dpdemo.results.check import CheckReport
from dpdemo.results.findings import NOTHING_CALLED, Finding

_ONLY_CALLS = "calls of DataParallel alone are checked here; DDP and FSDP by `dpdemo exec --ranks N --check`"
_OF_THE_WRAPPER = ("DP101", "DP102")  # rules about what a program does with the wrapper, beside its calls
MAX_REHEARSALS = 16  # kinds of calls that are rehearsed of one model: each costs some runs of it
MAX_KINDS = 100  # kinds of calls of one model that are judged; each is kept until the end


def is_rehearsing() -> bool:
    """Return whether what this thread does is a rehearsal's, and not the script's own."""
    return here.is_aside


class CallCheck:
    """Collects one call of each kind (shapes, mode, outcome) of every DataParallel, and judges them."""

    def __init__(self, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> None:
        self._rules = choose(select, ignore)
        self._subjects: dict[object, Subject] = {}
        self._by_wrapper: weakref.WeakKeyDictionary[nn.Module, Subject] = weakref.WeakKeyDictionary()
        self._loads: list[Event] = []
        self._mishaps = Notes()
        self._scales = Scales()
        self._rehearsing = threading.Lock()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every DataParallel of this process, for the length of a `with` block."""
        recorder = CallRecorder(self._before, self._after, self._after_gather, self._mishap)
        with recorder.watching(), watching_loads(self._loads), self._scales.watching(self._mishap):
            yield

    def _before(self, draft: Draft) -> None:
        if not getattr(draft.wrapper, "_is_replica", False):  # else DP106 tells of the one around it
            with self._unharmed():
                self._rehearse(draft)
                if draft.kind not in self._subject(draft.wrapper).seen:
                    draft.reaches = reaches_of(draft.wrapper.module)

    def _after(self, draft: Draft) -> None:
        if draft.kind is not None:  # else `_before` could not tell
            with self._unharmed():
                self._keep(draft)

    def _after_gather(self, draft: Draft) -> None:
        if isinstance(draft.kind, Kind):
            with self._unharmed():
                self._subject(draft.wrapper).follow_losses(draft, draft.kind, self._scales, self._unharmed)

    @contextlib.contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Note what goes wrong in looking at a call; the script does not notice."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - arguments and results are the user's own, and may raise anything
            self._mishap(error)

    def _mishap(self, error: Exception) -> None:
        """Note that a call could not be looked at."""
        try:
            text = first_line(str(error))
        except Exception:  # noqa: BLE001 - an exception of the user's may have no text
            text = ""
        self._mishaps.add(f"a DataParallel call could not be looked at ({type(error).__name__}: {text})")

    def _rehearse(self, draft: Draft) -> None:
        subject = self._subject(draft.wrapper)
        kind = draft.kind = _kind(draft)
        if draft.gap:
            subject.unchecked.add(draft.gap)
            return
        if kind in subject.rehearsed or not _can_be_rehearsed(draft, subject.scan):
            return
        alike = sum(known.setting == kind.setting for known in subject.rehearsed)
        if alike >= MAX_ALIKE or len(subject.rehearsed) >= MAX_REHEARSALS:
            if not any(map(kind.is_like, subject.rehearsed)):
                subject.note(
                    f"was not compared with one GPU in calls of all shapes, but in {MAX_ALIKE} of each batch "
                    f"size and mode, and in {MAX_REHEARSALS} at most"
                )
            return
        if not self._rehearsing.acquire(blocking=False):  # two at once would put back each other's generators
            subject.met_another.add(kind)
            return
        try:
            subject.rehearsed[kind] = rehearse(draft, is_first=not subject.rehearsed)
        finally:
            self._rehearsing.release()

    def _keep(self, draft: Draft) -> None:
        subject = self._subject(draft.wrapper)
        kind = draft.kind
        assert isinstance(kind, Kind)  # noqa: S101 - `_before` has set it
        subject.follow_losses(draft, kind, self._scales, self._unharmed)
        subject.kept |= dict.fromkeys(changed(draft.reaches))
        subject.seen.add(kind)
        call = draft.freeze()
        if call.raised is not None:
            subject.caches |= dict.fromkeys(caches_of(draft.wrapper.module))
        failure = (call.raised.type, call.raised.place) if call.raised else None
        key = kind, (failure, call.structure, call.events)
        if key in subject.probes and not subject.has_news(kind):
            return
        if len(subject.probes) >= MAX_KINDS:
            if not any(kind.is_like(known) for known, _ in subject.probes):
                subject.note(f"was watched in calls of {MAX_KINDS} kinds, and not in others")
            return
        rehearsed = subject.take_rehearsal(kind)
        subject.probes[key] = tuple(_probes(draft, call, rehearsed))
        if rehearsed.refused:
            subject.note(f"was not compared with one GPU{rehearsed.refused}")

    def _subject(self, splitter: nn.DataParallel[Any] | Splitter) -> Subject:
        module = wrapped_or_not(splitter)
        if module not in self._by_wrapper:
            ids = tuple(splitter.device_ids)
            first = torch.device("cuda", ids[0] if ids else 0)
            found = replace(scan(module, first), device_ids=ids)
            key = (found.model, found.module_types, ids, getattr(splitter, "dim", 0))
            function = splitter.function if isinstance(splitter, Splitter) else ""
            self._by_wrapper[module] = self._subjects.setdefault((*key, function), Subject(found, function))
        return self._by_wrapper[module]

    def report(self, ended_by: BaseException | None = None) -> CheckReport:
        """Judge what was collected so far, and the exception that has ended the program, if one has."""
        subjects = list(self._subjects.values()) or [Subject(Scan(NOTHING_CALLED))]
        reports = [self._judge(subject, index == 0) for index, subject in enumerate(subjects)]
        found = [finding for report in reports for finding in report.findings]
        last, foreign = self._end(ended_by, found)
        told = zip(subjects, reports, strict=True)
        notes = [note for subject, report in told for note in subject.notes_of(report)]
        notes += [note for note, _ in self._mishaps.items()]
        if not (self._subjects or ended_by):
            notes.append(_ONLY_CALLS)
        if foreign and found:
            notes.append(CheckReport("", 0, (), ended_by=foreign).ending)
        return CheckReport(
            ", ".join(dict.fromkeys(report.model for report in reports)),
            max(report.num_gpus for report in reports),
            in_order([*found, *last]),
            tuple(dict.fromkeys(size for report in reports for size in report.batch_sizes)),
            sum(report.silenced for report in reports),
            tuple(dict.fromkeys(notes)),
            compared=any(report.compared for report in reports),
            ended_by=foreign,
        )

    def _end(self, error: BaseException | None, found: Sequence[Finding]) -> tuple[list[Finding], str]:
        """Return the findings about the exception that ended the program, or else its text."""
        if error is None:
            return [], ""
        last = list(end_of_program(error, has_called=bool(self._subjects)))
        known = {finding.code for finding in found if finding.severity == "error"}
        told = {rule.code for rule in self._rules} - known
        is_explained = bool(last) and (bool(known) or any(finding.code in told for finding in last))
        new = [
            finding
            for finding in last
            if finding.code in told and (finding.code in _OF_THE_WRAPPER or not known)
        ]
        return new, "" if is_explained else _summary(error)

    def _judge(self, subject: Subject, is_first: bool) -> CheckReport:
        probes = tuple(subject.all_probes())
        num_gpus = len(subject.scan.device_ids) or torch.cuda.device_count()
        loads = tuple(self._loads) if is_first else ()  # they belong to no model
        sizes = tuple(dict.fromkeys(probe.batch_size for probe in probes if probe.batch_size))
        used = tuple(found for call in subject.rehearsed.values() for found in call.meanwhile)
        evidence = Evidence(
            num_gpus, subject.scan, probes, loads, is_program=True, meanwhile=used,
            kept=tuple(subject.kept), caches=tuple(subject.caches), split_by=subject.split_by,
        )  # fmt: skip
        return judge(evidence, self._rules, sizes)


def _summary(error: BaseException) -> str:
    """Return the first line of an exception's text; of a SyntaxError the lines of its code come before it."""
    lines = traceback.format_exception_only(error)
    return first_line(next((line for line in lines if not line.startswith(" ")), lines[0]))


def _probes(draft: Draft, call: Call, rehearsed: Rehearsal) -> Iterator[Probe]:
    """Combine the observations of a call and of its rehearsal."""
    planned = planned_call(draft)
    if _fails_anyway(call, rehearsed):
        return  # a note says so
    if not rehearsed.probes:
        yield Probe(planned.size, planned.mode, True, Single(), (call,), call.raised)
        return
    first, *more = rehearsed.probes
    # the script's own filters may hide a warning that the rehearsal has seen
    unheard = tuple(text for known in first.calls[:1] for text in known.warnings if text not in call.warnings)
    seen = replace(call, warnings=call.warnings + unheard)
    yield replace(first, calls=(seen,), raised=call.raised)
    yield from more


def _can_be_rehearsed(draft: Draft, scan: Scan) -> bool:
    """Return whether there is anything to rehearse; a replica's calls are part of the one around them."""
    return here.replica is None and len(draft.wrapper.device_ids) > 1 and scan.can_be_copied


def _kind(draft: Draft) -> Kind:
    """Return the key of a call; values of numbers are left out, since step counters change."""
    leaves = describe_all(flatten_arguments(draft.wrapper.module.forward, draft.args, draft.kwargs))
    numbers = ("int", "float", "complex")
    setting = (planned_call(draft), torch.is_grad_enabled(), draft.callers_state)
    arguments = tuple(replace(leaf, text="") if leaf.type in numbers else leaf for leaf in leaves)
    return Kind(setting, arguments, torch.is_grad_enabled())


def _fails_anyway(call: Call, rehearsed: Rehearsal) -> bool:
    """Return whether a call fails on one GPU in the very same way: then it is not DataParallel's doing."""
    alone, here = rehearsed.raised, call.raised
    return alone is not None and here is not None and (alone.type, alone.place) == (here.type, here.place)
