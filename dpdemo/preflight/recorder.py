"""Recording DataParallel's calls, step by step, while genuine DataParallel makes them.

The four steps are methods of `nn.DataParallel` (torch/nn/parallel/data_parallel.py); each is watched where
it stands, so every instance in the process is, inner ones and those of a user's script too. Each replica is
called through a `_Watched`, which keeps what `parallel_apply` would throw away: the outputs and exceptions
of all replicas, not only of the lowest one that failed, with true tracebacks.
"""

import contextlib
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from dpdemo.preflight.evidence import Call, Raised, Replica, Stage
from dpdemo.preflight.leaves import describe_all, flatten, flatten_arguments, named, structure
from dpdemo.preflight.places import functions_in, places_in
from dpdemo.preflight.watch import Watch, being, here, replaced, threads_state, watched_by

_OUR_FRAME = re.compile(rf'^  File "{re.escape(__file__)}".*\n(?:    .*\n)*', re.MULTILINE)


def raised(stage: Stage, error: BaseException, replica: int | None = None) -> Raised:
    """Take an exception apart."""
    trace = error.__traceback__
    return Raised(
        stage, type(error).__name__, str(error), replica, places_in(trace), functions_in(trace)[-8:]
    )


@dataclass
class Draft:
    """A call while it is under way, with its live values."""

    wrapper: nn.DataParallel[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    stage: Stage = "wrapper"
    delivered: list[tuple[Any, Any]] = field(default_factory=list)
    outputs: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, Raised] = field(default_factory=dict)
    states: dict[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    gathered: tuple[Any] | None = None
    error: Raised | None = None
    callers_state: tuple[tuple[str, str], ...] = ()
    watch: Watch = field(default_factory=Watch)
    kind: object = None
    """What `before_call` tells calls apart by, where it does: forward may change its arguments."""

    def freeze(self) -> Call:
        """Write down what was seen."""
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
            events=tuple(self.watch.events),
            callers_state=self.callers_state,
            module=type(self.wrapper.module).__name__,
            argument_structures=tuple(
                (name, structure(value)) for name, value in named(forward, self.args, self.kwargs)
            ),
        )

    def _replica(self, index: int) -> Replica:
        args, kwargs = self.delivered[index]
        ended = index in self.outputs
        return Replica(
            index,
            f"cuda:{self.wrapper.device_ids[index]}",
            inputs=describe_all(flatten_arguments(self.wrapper.module.forward, args, kwargs)),
            output=describe_all(flatten(self.outputs[index])) if ended else None,
            structure=structure(self.outputs[index]) if ended else "",
            raised=self.failures.get(index),
            threads_state=self.states.get(index, ()),
        )


class _Watched:
    """Calls a replica for `parallel_apply`, and notes what became of it."""

    def __init__(self, replica: Any, index: int, draft: Draft) -> None:
        self._replica = replica
        self._index = index
        self._draft = draft
        self._is_aside = here.is_aside

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        draft, index = self._draft, self._index
        draft.states[index] = threads_state()
        try:
            with self._being_replica():
                output = self._replica(*args, **kwargs)
        except BaseException as error:
            draft.failures[index] = raised("replica", error, index)
            raise
        draft.outputs[index] = output
        return output

    def _being_replica(self) -> AbstractContextManager[None]:
        draft, index = self._draft, self._index
        device = draft.wrapper.device_ids[index]
        return being(replica=index, device=device, watch=draft.watch, is_aside=self._is_aside)


def _paired(inputs: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """Pair what each replica gets, also where the two are not equally many, which parallel_apply refuses."""
    filled = itertools.zip_longest(inputs, kwargs)
    return [(() if args is None else args, named or {}) for args, named in filled]


def _hide_us(error: Exception) -> None:
    """Take our frame out of the traceback that `parallel_apply` writes into the message."""
    if error.args and isinstance(error.args[0], str) and __file__ in error.args[0]:
        text = error.args[0]
        error.args = (type(text)(_OUR_FRAME.sub("", text)), *error.args[1:])


class CallRecorder:
    """Collects a `Draft` for each DataParallel call made while `watching` is open.

    With `before_call` and `after_call` each is handed over instead, and not kept: it holds live tensors. What
    `before_call` itself calls is set aside, and recorded by a recorder that it opens, if at all.
    """

    def __init__(
        self,
        before_call: Callable[[Draft], None] | None = None,
        after_call: Callable[[Draft], None] = lambda _: None,
    ) -> None:
        self.drafts: list[Draft] = []
        self._before_call = before_call or self.drafts.append
        self._after_call = after_call
        self._is_aside = False
        self._current = threading.local()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every DataParallel of this process, for the length of a `with` block."""
        self._is_aside = here.is_aside
        with contextlib.ExitStack() as undo:
            for name, make in (
                ("forward", self._forward),
                ("scatter", self._scatter),
                ("replicate", self._replicate),
                ("parallel_apply", self._parallel_apply),
                ("gather", self._gather),
            ):
                undo.enter_context(replaced(nn.DataParallel, name, make))
            yield

    def _forward(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        del name

        def forward(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            if here.is_aside != self._is_aside:
                return genuine(wrapper, *args, **kwargs)
            draft = Draft(wrapper, args, kwargs, callers_state=threads_state())
            self._announce(draft)
            outer = getattr(self._current, "draft", None)
            self._current.draft = draft
            try:
                with watched_by(draft.watch):
                    result = genuine(wrapper, *args, **kwargs)
            except Exception as error:
                _hide_us(error)
                draft.error = self._first_failure(draft) or raised(draft.stage, error)
                self._after_call(draft)
                raise
            finally:
                self._current.draft = outer
            self._after_call(draft)
            return result

        return forward

    def _announce(self, draft: Draft) -> None:
        with being(is_aside=True):
            self._before_call(draft)

    @staticmethod
    def _first_failure(draft: Draft) -> Raised | None:
        return draft.failures[min(draft.failures)] if draft.failures else None

    def _scatter(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def scatter(wrapper: Any, *args: Any) -> Any:
            draft = self._enter(name)
            inputs, kwargs = genuine(wrapper, *args)
            if draft is not None:
                draft.delivered = _paired(inputs, kwargs)
            return inputs, kwargs

        return scatter

    def _replicate(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def replicate(wrapper: Any, *args: Any) -> Any:
            self._enter(name)
            return genuine(wrapper, *args)

        return replicate

    def _parallel_apply(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        del name

        def parallel_apply(wrapper: Any, replicas: Any, inputs: Any, kwargs: Any) -> Any:
            draft = self._enter("replica")
            if draft is not None:
                draft.delivered = _paired(inputs, kwargs)  # again: a user's own scatter is not watched
                replicas = [_Watched(replica, index, draft) for index, replica in enumerate(replicas)]
            return genuine(wrapper, replicas, inputs, kwargs)

        return parallel_apply

    def _gather(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def gather(wrapper: Any, *args: Any) -> Any:
            draft = self._enter(name)
            result = genuine(wrapper, *args)
            if draft is not None:
                draft.gathered = (result,)
            return result

        return gather

    def _enter(self, stage: Any) -> Draft | None:
        draft: Draft | None = getattr(self._current, "draft", None)
        if draft is not None:
            draft.stage = stage
        return draft
