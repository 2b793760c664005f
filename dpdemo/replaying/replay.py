"""Repeating a recording on whatever is there, and finding where it first differs."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import torch

from dpdemo.config.fields import Config
from dpdemo.config.gpus import Gpus
from dpdemo.config.load import resolve
from dpdemo.errors import UsageError
from dpdemo.replaying.record import observed
from dpdemo.replaying.verdict import compare
from dpdemo.reports.devices import Devices
from dpdemo.reports.recording import Recording, TensorRecord, load_recording
from dpdemo.reports.replay import Difference, Replay
from dpdemo.running.opening import opened
from dpdemo.running.visible import num_visible
from dpdemo.wording import show_key


def replay(
    recording: Recording | str | os.PathLike[str],
    *,
    virtual: bool | None = None,
    gpus: Gpus | list[int] | None = None,
    trust: bool = False,
) -> Replay:
    """Repeat a recording and compare every tensor with what was recorded.

    Args:
        recording: a Recording, or the path of one.
        virtual: on virtual GPUs, or on real ones; left out, on real ones where there are any.
        trust: import and run the model that the recording names, where it is not one of dpdemo's own.
        gpus: ordinals in place of the recorded ones, as many, such as `[0, 0, 0]` for one card three times.

    Returns:
        Whether all is identical or equal to round-off, or where it first differs.

    Raises:
        UsageError: if the recording cannot be read, or needs GPUs that are not there.
        RunError: if the model fails.

    """
    where = "a recording" if isinstance(recording, Recording) else os.fspath(recording)
    found = recording if isinstance(recording, Recording) else load_recording(recording)
    recorded = found.checked_config(where)
    if not trust and not recorded.is_builtin:
        raise UsageError(
            f"expected a model of dpdemo's own, got {show_key(recorded.model)}, whose code a replay would "
            f"import and run - at {where}, `config.model`",
            hint="if you know where the recording comes from: --trust (in Python, trust=True)",
        )
    visible = num_visible()
    on_virtual = (
        virtual if virtual is not None else not visible and (recorded.gpus is not None or gpus is not None)
    )
    config = _placed(recorded, gpus, visible, where, on_virtual=on_virtual)
    with opened(config, virtual=on_virtual) as (devices, _):
        was = _recorded_devices(recorded)
        comparison = _Comparison(_renaming(recorded, config, was, devices))
        with closing(observed(config, devices, len(found.batches))) as records:
            first = comparison.first(_expected(found), records)
    return Replay(
        verdict="different" if first else "equal to round-off" if comparison.num_inexact else "identical",
        devices=devices,
        virtual=on_virtual,
        torch=str(torch.__version__),
        recorded_torch=found.torch,
        recorded_virtual=found.virtual,
        recorded_devices=was,
        num_batches=len(found.batches),
        num_tensors=comparison.num_tensors,
        num_inexact=comparison.num_inexact,
        largest=comparison.largest,
        first=first,
    )


def _recorded_devices(config: Config) -> Devices:
    assert isinstance(config.gpus, tuple) or config.gpus is None  # noqa: S101 - `_placed` has refused others
    return Devices.of("cuda", config.gpus) if config.gpus is not None else Devices.cpu()


def _placed(
    recorded: Config, gpus: Gpus | list[int] | None, visible: int, where: str, *, on_virtual: bool
) -> Config:
    """Choose the GPUs of the replay: those recorded, those named instead, or one for what the CPU did."""
    if not (isinstance(recorded.gpus, tuple) or recorded.gpus is None):
        raise UsageError(f"expected a list of ordinals, got {recorded.gpus} - at {where}, `config.gpus`")
    was = recorded.gpus or (0,)
    if gpus is None:
        wanted = recorded.gpus if recorded.gpus is not None else ((0,) if visible or on_virtual else None)
    else:
        wanted = _named(gpus, visible)
        if len(wanted) != len(was):
            raise UsageError(
                f"expected {len(was)} GPUs, one for each that was recorded, got {len(wanted)} - at `gpus`",
                hint=f"name one as often as is needed: --gpus {','.join('0' * len(was))}",
            )
    out = _moved_output(recorded, wanted, was)
    needed = {*(wanted or ()), *(() if out is None else (out,))}
    if not on_virtual and wanted is not None and max(needed) >= visible:
        raise UsageError(
            f"expected {max(needed) + 1} visible GPUs, got {visible} - at {where}, `config.gpus`",
            hint=f"--gpus {','.join('0' * len(was))} puts all replicas on one GPU, and --virtual needs none"
            if visible
            else "--virtual needs no GPU",
        )
    return resolve(recorded, {"gpus": wanted, "output_device": out})


def _named(gpus: Gpus | list[int], visible: int) -> tuple[int, ...]:
    if gpus == "all":
        return tuple(range(visible))
    return tuple(range(gpus)) if isinstance(gpus, int) else tuple(int(ordinal) for ordinal in gpus)


def _moved_output(recorded: Config, wanted: tuple[int, ...] | None, was: tuple[int, ...]) -> int | None:
    """Gather where the recording did, or on the GPU that now stands in its place."""
    out = recorded.output_device
    if out is None or wanted is None or wanted == was:
        return out
    return wanted[was.index(out)] if out in was else wanted[0]


def _renaming(recorded: Config, config: Config, was: Devices, now: Devices) -> Callable[[str], str]:
    """Translate a recorded device into the one that stands in its place."""
    names = dict(zip(was, now, strict=True))
    if recorded.output_device is not None and config.output_device is not None:
        names.setdefault(f"cuda:{recorded.output_device}", f"cuda:{config.output_device}")
    return lambda name: names.get(name, name)


def _expected(recording: Recording) -> Iterator[tuple[TensorRecord, ...]]:
    yield recording.weights
    yield from (batch.tensors for batch in recording.batches)


@dataclass
class _Comparison:
    """Counts what was compared, and remembers the largest round-off."""

    rename: Callable[[str], str]
    num_tensors: int = 0
    num_inexact: int = 0
    largest: Difference | None = field(default=None)

    def first(
        self, expected: Iterable[tuple[TensorRecord, ...]], got: Iterable[tuple[TensorRecord, ...]]
    ) -> Difference | None:
        """Compare batch by batch until something differs by more than round-off."""
        found = iter(got)
        for number, recorded in enumerate(expected):
            repeated = next(found, ())
            for index in range(max(len(recorded), len(repeated))):
                want = recorded[index] if index < len(recorded) else None
                have = repeated[index] if index < len(repeated) else None
                difference = self._compare(number, want, have)
                if difference is not None:
                    return difference
        return None

    def _compare(
        self, number: int, want: TensorRecord | None, have: TensorRecord | None
    ) -> Difference | None:
        if want is None or have is None or want.what != have.what:
            names = [record.what if record else "nothing" for record in (want, have)]
            return Difference(number, names[0] if want else names[1], "tensor", names[0], names[1])
        self.num_tensors += 1
        difference = compare(number, self._renamed(want, have), have)
        if difference is None or not difference.is_round_off:
            return difference
        self.num_inexact += 1
        if self.largest is None or difference.severity > self.largest.severity:
            self.largest = difference
        return None

    def _renamed(self, want: TensorRecord, have: TensorRecord) -> TensorRecord:
        device = self.rename(want.device)
        if want.device == "cpu" and have.device == "cpu":
            device = "cpu"  # an input that stays on the CPU, as `hybrid`'s ids do wherever it is replayed
        return want if device == want.device else want.model_copy(update={"device": device})
