"""Recording calls that split a batch, step by step, while genuine DataParallel makes them.

It stands around the steps of the one seam (`calls/seam.py`), so it sees calls of DataParallel and of
its subclasses, of `data_parallel`, and of the functions called by hand. A `WatchedReplica` keeps what
`parallel_apply` would throw away: the outputs and exceptions of all replicas, not only of the lowest one that
failed, with true tracebacks.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dpdemo.calls.arguments import index_of, of_each_replica
from dpdemo.calls.live import CallFollower
from dpdemo.calls.seam import Around
from dpdemo.checking.evidence import Stage
from dpdemo.checking.recording.by_hand import HandSteps, draft_by_hand, draft_of
from dpdemo.checking.recording.drafts import Draft, WatchedReplica, raised
from dpdemo.checking.recording.inside import being, here, threads_state, watched_by
from dpdemo.models.frames import hide_ours


def _raise(error: Exception) -> None:
    raise error


def is_recorded_by_pytorch() -> bool:
    """Whether this thread's operators go into a graph, and compute nothing that could be compared."""
    return bool(
        torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
    )


class _Local(threading.local):
    """Steps that a thread has called by hand: what was cut and replicated, and the call that came of it."""

    def __init__(self) -> None:
        self.made = HandSteps()
        self.applied: Draft | None = None


class CallRecorder(CallFollower[Draft]):
    """Collects a `Draft` for each call that splits a batch, made while `watching` is open.

    With `before_call` and `after_call` each is handed over instead, and not kept: it holds live tensors. What
    `before_call` itself calls is set aside, and recorded by a recorder that it opens, if at all. Results of a
    call by hand may be gathered later: `after_gather` gets it then.

    `on_mishap` gets what goes wrong in recording a call. It may raise, as it does if left out; else the call
    goes on as if nobody recorded it.
    """

    def __init__(
        self,
        before_call: Callable[[Draft], None] | None = None,
        after_call: Callable[[Draft], None] = lambda _: None,
        after_gather: Callable[[Draft], None] = lambda _: None,
        on_mishap: Callable[[Exception], None] = _raise,
    ) -> None:
        super().__init__(self._is_left_out)
        self.drafts: list[Draft] = []
        self._keeps = before_call is None
        self._before_call = before_call or self.drafts.append
        self._after_call, self._after_gather, self._on_mishap = after_call, after_gather, on_mishap
        self._hand = _Local()
        self._is_aside = False

    def _safely(self, part: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a part of the recording; where it fails, note that, return None, and spare the program."""
        try:
            return part(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - values are the user's own, and may raise anything
            self._on_mishap(error)
            return None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record the calls of this process for the length of a `with` block."""
        self._is_aside = here.is_aside
        with self.following(
            cut=self._cut,
            scatter=self._scatter,
            scatter_kwargs=self._scatter_kwargs,
            replicate=self._replicate,
            gather=self._gather,
        ):
            yield

    def _is_left_out(self) -> bool:
        return here.is_aside != self._is_aside or is_recorded_by_pytorch()

    def _begin(self, *call: Any) -> Draft | None:
        draft: Draft | None = self._safely(draft_of, *call)
        return draft

    def _begin_by_hand(self, *given: Any) -> Draft | None:
        self._hand.applied = None
        draft: Draft | None = self._safely(draft_by_hand, self._hand.made, *given)
        return draft

    def _follow(self, call: Draft, run: Callable[[], Any]) -> Any:
        """Run a call; its draft is handed over before it and after it."""
        self._safely(self._announce, call)
        try:
            with watched_by(call.watch):
                result = run()
        except Exception as error:
            self._safely(self._failed, call, error)
            raise
        finally:
            for mishap in call.watch.mishaps:
                self._on_mishap(mishap)
        self._safely(self._after_call, call)
        if call.is_by_hand:
            if not self._keeps:
                self._safely(call.let_go)
            self._hand.applied = call
        return result

    def _apply(self, call: Draft, proceed: Around, modules: Any, *given: Any) -> Any:
        return proceed(self._safely(self._watched, call, modules, *given) or modules, *given)

    def _failed(self, draft: Draft, error: Exception) -> None:
        hide_ours(error)
        first = draft.failures[min(draft.failures)] if draft.failures else None
        draft.error = first or raised(draft.stage, error)
        self._after_call(draft)

    def _announce(self, draft: Draft) -> None:
        with being(is_aside=True):
            self._before_call(draft)

    def _enter(self, stage: Stage) -> Draft | None:
        draft: Draft | None = None if self._is_anothers() else self._local.call
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
        if self._local.call is None and not self._is_anothers():
            self._safely(self._hand.made.cuts.note, tensor, chunks, dim)
        return chunks

    def _replicate(
        self, proceed: Callable[..., object], network: Any, devices: Any, *args: object, **kwargs: object
    ) -> object:
        draft = self._enter("replicate")
        replicas = proceed(network, devices, *args, **kwargs)
        if draft is None and not self._is_anothers():
            self._hand.made.replicated = self._safely(
                lambda: (network, list(map(index_of, devices)), replicas)
            )
        return replicas

    def _watched(
        self, draft: Draft, modules: Any, inputs: Any, kwargs_tup: Any, devices: Any
    ) -> list[WatchedReplica]:
        draft.stage = "replica"
        draft.callers_state = threads_state()  # a wrapper of the user's may have opened autocast by now
        draft.delivered = of_each_replica(inputs, kwargs_tup)  # again: a user's own scatter is not watched
        if devices is not None:
            draft.devices = list(map(index_of, devices))
        return [
            WatchedReplica(replica, index, draft, self._safely, self._keeps)
            for index, replica in enumerate(modules)
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
        done, self._hand.applied = self._hand.applied, None
        try:
            result = proceed(outputs, target_device, dim)
        except Exception as error:
            if done is not None:
                done.stage = "gather"
                self._safely(self._failed, done, error)
            raise
        if done is not None:
            done.gathered = (result,)
            self._safely(self._after_gather, done)
            if done.frozen is not None:
                self._safely(done.let_go)
        return result
