"""Recording calls that split a batch, step by step, while genuine DataParallel makes them.

It stands around the steps of the one seam (`calls/seam.py`), so it sees calls of DataParallel and of
its subclasses, of `data_parallel`, and of the functions called by hand. Each replica is called through a
`Watched`, which keeps what `parallel_apply` would throw away: the outputs and exceptions of all replicas,
not only of the lowest one that failed, with true tracebacks.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dpdemo.calls.arguments import index_of, of_each_replica
from dpdemo.calls.seam import around
from dpdemo.checking.evidence import Stage
from dpdemo.checking.recording.by_hand import (
    Made,
    call_by_hand,
    draft_of_call,
    draft_of_function,
)
from dpdemo.checking.recording.drafts import Draft, Watched, raised
from dpdemo.checking.recording.inside import being, here, threads_state, watched_by
from dpdemo.models.frames import hide_ours


def _raise(error: Exception) -> None:
    raise error


class _Local(threading.local):
    """What a thread is about: the call under way, and what it did by hand."""

    def __init__(self) -> None:
        self.draft: Draft | None = None
        self.made = Made()
        self.applied: Draft | None = None


def is_recorded_by_pytorch() -> bool:
    """Whether this thread's operators go into a graph, and compute nothing that could be compared."""
    return bool(
        torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
    )


@dataclass(eq=False)
class CallRecorder:
    """Collects a `Draft` for each call that splits a batch, made while `watching` is open.

    With `before_call` and `after_call` each is handed over instead, and not kept: it holds live tensors. What
    `before_call` itself calls is set aside, and recorded by a recorder that it opens, if at all. Results of a
    call by hand may be gathered later: `after_gather` gets it then.

    `on_mishap` gets what goes wrong in recording a call. It may raise, as it does if left out; else the call
    goes on as if nobody recorded it.
    """

    before_call: Callable[[Draft], None] | None = None
    after_call: Callable[[Draft], None] = lambda _: None
    after_gather: Callable[[Draft], None] = lambda _: None
    on_mishap: Callable[[Exception], None] = _raise
    drafts: list[Draft] = field(default_factory=list)
    _local: _Local = field(init=False, default_factory=_Local)
    _is_aside: bool = field(init=False, default=False)

    @property
    def _keeps(self) -> bool:
        return self.before_call is None

    def _safely(self, part: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a part of the recording; where it fails, note that, return None, and spare the program."""
        try:
            return part(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - values are the user's own, and may raise anything
            self.on_mishap(error)
            return None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every call of this process that splits a batch, for the length of a `with` block."""
        self._is_aside = here.is_aside
        with around(
            call=partial(self._split, draft_of_call),
            data_parallel=partial(self._split, draft_of_function),
            cut=self._cut,
            scatter=self._scatter,
            scatter_kwargs=self._scatter_kwargs,
            replicate=self._replicate,
            parallel_apply=self._parallel_apply,
            gather=self._gather,
        ):
            yield

    def _is_anothers(self) -> bool:
        return here.is_aside != self._is_aside or is_recorded_by_pytorch()

    def _split(
        self, begin: Callable[..., Draft], proceed: Callable[..., Any], /, *args: object, **kwargs: object
    ) -> Any:
        """Record a call that splits a batch from its beginning to its end."""
        if self._is_anothers():
            return proceed(*args, **kwargs)
        with self._recorded(self._safely(begin, *args, **kwargs)):
            return proceed(*args, **kwargs)

    @contextlib.contextmanager
    def _recorded(self, draft: Draft | None) -> Iterator[None]:
        """Let the steps that follow in this thread find the call that they belong to, if it has a draft."""
        if draft is None:
            yield
            return
        self._safely(self._announce, draft)
        outer, self._local.draft = self._local.draft, draft
        try:
            with watched_by(draft.watch):
                yield
        except Exception as error:
            self._safely(self._failed, draft, error)
            raise
        finally:
            self._local.draft = outer
            for mishap in draft.watch.mishaps:
                self.on_mishap(mishap)
        self._safely(self.after_call, draft)

    def _failed(self, draft: Draft, error: Exception) -> None:
        hide_ours(error)
        first = draft.failures[min(draft.failures)] if draft.failures else None
        draft.error = first or raised(draft.stage, error)
        self.after_call(draft)

    def _announce(self, draft: Draft) -> None:
        with being(is_aside=True):
            (self.before_call or self.drafts.append)(draft)

    def _enter(self, stage: Stage) -> Draft | None:
        draft = None if self._is_anothers() else self._local.draft
        if draft is not None:
            draft.stage = stage
        return draft

    def _scatter(self, proceed: Callable[..., object], *args: object, **kwargs: object) -> object:
        self._enter("scatter")
        return proceed(*args, **kwargs)

    def _scatter_kwargs(self, proceed: Callable[..., Any], *args: object, **kwargs: object) -> object:
        draft = self._enter("scatter")
        chunks, named_chunks = proceed(*args, **kwargs)
        if draft is not None:
            draft.delivered = self._safely(of_each_replica, chunks, named_chunks) or []
        return chunks, named_chunks

    def _cut(
        self,
        proceed: Callable[..., Any],
        target_gpus: object,
        chunk_sizes: object,
        dim: int,
        tensor: torch.Tensor,
    ) -> object:
        chunks = proceed(target_gpus, chunk_sizes, dim, tensor)
        if self._local.draft is None and not self._is_anothers():
            self._safely(self._local.made.cuts.note, tensor, chunks, dim)
        return chunks

    def _replicate(
        self, proceed: Callable[..., object], network: Any, devices: Any, *args: object, **kwargs: object
    ) -> object:
        draft = self._enter("replicate")
        replicas = proceed(network, devices, *args, **kwargs)
        if draft is None and not self._is_anothers():
            self._local.made.replicated = self._safely(
                lambda: (network, list(map(index_of, devices)), replicas)
            )
        return replicas

    def _parallel_apply(
        self,
        proceed: Callable[..., object],
        modules: Any,
        inputs: Any,
        kwargs_tup: object = None,
        devices: Any = None,
    ) -> object:
        given = inputs, kwargs_tup, devices
        if self._is_anothers():
            return proceed(modules, *given)
        draft = self._enter("replica")
        if draft is not None:
            return proceed(self._safely(self._watched, draft, modules, *given) or modules, *given)
        draft = self._safely(call_by_hand, self._local.made, modules, *given)
        with self._recorded(draft):
            watched = None if draft is None else self._safely(self._watched, draft, modules, *given)
            outputs = proceed(watched or modules, *given)
        if draft is not None and not self._keeps:
            self._safely(draft.let_go)
        self._local.applied = draft
        return outputs

    def _watched(
        self, draft: Draft, modules: Any, inputs: Any, kwargs_tup: Any, devices: Any
    ) -> list[Watched]:
        draft.stage = "replica"
        draft.callers_state = threads_state()  # a wrapper of the user's may have opened autocast by now
        draft.delivered = of_each_replica(inputs, kwargs_tup)  # again: a user's own scatter is not watched
        if devices is not None:
            draft.devices = list(map(index_of, devices))
        return [
            Watched(replica, index, draft, self._safely, self._keeps) for index, replica in enumerate(modules)
        ]

    def _gather(
        self, proceed: Callable[..., Any], outputs: object, target_device: object, dim: int = 0
    ) -> object:
        if self._is_anothers():
            return proceed(outputs, target_device, dim)
        draft = self._enter("gather")
        if draft is not None:
            result = proceed(outputs, target_device, dim)
            draft.gathered = (result,)
            return result
        done, self._local.applied = self._local.applied, None
        try:
            result = proceed(outputs, target_device, dim)
        except Exception as error:
            if done is not None:
                done.stage = "gather"
                self._safely(self._failed, done, error)
            raise
        if done is not None:
            done.gathered = (result,)
            self._safely(self.after_gather, done)
            if done.frozen is not None:
                self._safely(done.let_go)
        return result
