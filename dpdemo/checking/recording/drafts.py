"""A call that splits a batch, while it is under way: what it is split by, and what each step gave."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from dpdemo.calls.live import LiveCall, Splitter
from dpdemo.calls.tree import flatten
from dpdemo.checking.evidence import Call, RaisedError, Replica, Stage
from dpdemo.checking.observing.hooks import Reach
from dpdemo.checking.observing.leaves import describe_all, flatten_arguments, named, structure
from dpdemo.checking.recording.inside import ReplicaLog, being, here, threads_state
from dpdemo.checking.source import functions_in, places_in, text_around
from dpdemo.models.failure import ModelExit, as_exception
from dpdemo.models.rows import pictures_in


def raised(stage: Stage, error: BaseException, replica: int | None = None) -> RaisedError:
    """Take an exception apart."""
    trace = error.__traceback__
    places, functions = places_in(trace), functions_in(trace)[-8:]
    kind, text, leaves = type(error).__name__, str(error), isinstance(error, ModelExit)
    return RaisedError(stage, kind, text, replica, places, functions, leaves, text_around(places))


def wrapped_or_not(splitter: "nn.DataParallel[Any] | Splitter") -> nn.Module:
    """Return the module that stands for what splits: the wrapper, or the model itself where there is none."""
    return splitter.module if isinstance(splitter, Splitter) else splitter


@dataclass(eq=False)
class Draft(LiveCall):
    """A call with what each of its steps gave.

    `gap` says why it cannot be made again, where it cannot: then its arguments are not known.
    """

    stage: Stage = "wrapper"
    devices: list[int] = field(default_factory=list)
    delivered: list[tuple[Any, Any]] = field(default_factory=list)
    outputs: dict[int, object] = field(default_factory=dict)
    failures: dict[int, RaisedError] = field(default_factory=dict)
    states: dict[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    gathered: tuple[object] | None = None
    error: RaisedError | None = None
    callers_state: tuple[tuple[str, str], ...] = ()
    watch: ReplicaLog = field(default_factory=ReplicaLog)
    kind: object = None
    """What `before_call` tells calls apart by, where it does: forward may change its arguments."""
    planned: int = 0
    """The rows that its arguments were made for; 0 where that is not known."""
    reaches: dict[tuple[str, str], Reach] = field(default_factory=dict)
    """What the user's hooks can write to, where that is looked at."""
    frozen: Call | None = None
    gap: str = ""

    def freeze(self) -> Call:
        """Write down what was seen."""
        if self.frozen is not None:
            return replace(self.frozen, raised=self.error)
        forward = self.wrapper.module.forward
        gathered = None if self.gathered is None else describe_all(flatten(self.gathered[0]))
        return Call(
            num_gpus=len(self.wrapper.device_ids),
            dim=getattr(self.wrapper, "dim", 0),
            arguments=describe_all(flatten_arguments(forward, self.args, self.kwargs)),
            replicas=tuple(self._replica(index) for index in range(len(self.delivered))),
            gathered=gathered,
            structure="" if self.gathered is None else structure(self.gathered[0]),
            raised=self.error,
            warnings=tuple(self.watch.warned),
            events=self.watch.all_events(),
            callers_state=self.callers_state,
            argument_structures=tuple(
                (name, structure(value)) for name, value in named(forward, self.args, self.kwargs)
            ),
            pictures=max((pictures_in(arg) for arg in (*self.args, *self.kwargs.values())), default=0),
            shares=self.wrapper.chunks if isinstance(self.wrapper, Splitter) else (),
            planned=self.planned,
        )

    def let_go(self) -> None:
        """Write down what was seen, and keep no live value: only an exception may follow."""
        self.frozen = self.freeze()
        self.args, self.kwargs, self.gathered = (), {}, None
        self.delivered.clear()
        self.outputs.clear()

    def device_of(self, index: int) -> int:
        """Return the GPU of a replica."""
        return (self.devices or list(self.wrapper.device_ids))[index]

    def _replica(self, index: int) -> Replica:
        args, kwargs = self.delivered[index]
        ended = index in self.outputs
        return Replica(
            index,
            inputs=describe_all(flatten_arguments(self.wrapper.module.forward, args, kwargs)),
            output=describe_all(flatten(self.outputs[index])) if ended else None,
            structure=structure(self.outputs[index]) if ended else "",
            raised=self.failures.get(index),
            threads_state=self.states.get(index, ()),
        )


@dataclass(eq=False)
class WatchedReplica:
    """Calls a replica for `parallel_apply` and notes the outcome."""

    replica: Callable[..., object]
    index: int
    draft: Draft
    safely: Callable[..., Any]
    is_ours: bool
    is_aside: bool = field(default_factory=lambda: here.is_aside)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call the replica, with its number and its GPU known to all that is watched."""
        draft, index = self.draft, self.index
        self.safely(lambda: draft.states.update({index: threads_state()}))
        replica = self.safely(self._being_replica)
        try:
            with replica or contextlib.nullcontext():
                output = self.replica(*args, **kwargs)
        except BaseException as error:
            self.safely(self._note_failure, error)
            if self.is_ours and not isinstance(error, (Exception, KeyboardInterrupt)):
                raise as_exception(error) from None  # else the replica's thread would show it
            raise
        draft.outputs[index] = output
        return output

    def _note_failure(self, error: BaseException) -> None:
        self.draft.failures[self.index] = raised("replica", error, self.index)

    def _being_replica(self) -> AbstractContextManager[None]:
        device, watch = self.draft.device_of(self.index), self.draft.watch
        return being(replica=self.index, device=device, watch=watch, is_aside=self.is_aside)
