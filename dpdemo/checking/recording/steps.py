"""Recording calls that split a batch, step by step, while genuine DataParallel makes them.

It stands around the steps of the one seam (`watching/seam.py`), so it sees calls of DataParallel and of
its subclasses, of `data_parallel`, and of the functions called by hand. Each replica is called through a
`_Watched`, which keeps what `parallel_apply` would throw away: the outputs and exceptions of all replicas,
not only of the lowest one that failed, with true tracebacks.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dpdemo.checking.evidence import Raised, Stage
from dpdemo.checking.recording.cuts import Cuts, is_in_chunks
from dpdemo.checking.recording.drafts import Draft, Splitter, raised
from dpdemo.checking.recording.inside import being, here, threads_state, watched_by
from dpdemo.models.failure import as_exception
from dpdemo.models.frames import without_watchers
from dpdemo.watching.seam import around
from dpdemo.watching.tree import tensors_in

_IN_CHUNKS = "its arguments are in chunks already"


class _Watched:
    """Calls a replica for `parallel_apply`, and notes what became of it; a call of ours is no script's."""

    def __init__(
        self,
        replica: Callable[..., object],
        index: int,
        draft: Draft,
        safely: Callable[..., Any],
        *,
        is_ours: bool,
    ) -> None:
        self.replica = replica
        self._safely = safely
        self._is_ours = is_ours
        self._index = index
        self._draft = draft
        self._is_aside = here.is_aside

    def __call__(self, *args: object, **kwargs: object) -> object:
        draft, index = self._draft, self._index
        self._safely(self._note_state)
        replica = self._safely(self._being_replica)
        try:
            with replica or contextlib.nullcontext():
                output = self.replica(*args, **kwargs)
        except BaseException as error:
            self._safely(self._note_failure, error)
            if self._is_ours and not isinstance(error, (Exception, KeyboardInterrupt)):
                raise as_exception(error) from None  # else the replica's thread would show it
            raise
        draft.outputs[index] = output
        return output

    def _note_state(self) -> None:
        self._draft.states[self._index] = threads_state()

    def _note_failure(self, error: BaseException) -> None:
        self._draft.failures[self._index] = raised("replica", error, self._index)

    def _being_replica(self) -> AbstractContextManager[None]:
        draft, index = self._draft, self._index
        device = draft.device_of(index)
        return being(replica=index, device=device, watch=draft.watch, is_aside=self._is_aside)


def _paired(inputs: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """Pair what each replica gets, also where the two are not equally many, which parallel_apply refuses."""
    filled = itertools.zip_longest(inputs, kwargs or ())
    return [(_as_arguments(args), named or {}) for args, named in filled]


def _as_arguments(args: object) -> object:
    """Read one replica's arguments as parallel_apply does: a lone value need not stand in a tuple."""
    return () if args is None else args if isinstance(args, (list, tuple)) else (args,)


def _raise(error: Exception) -> None:
    raise error


def _draft_of_call(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, object]) -> Draft:
    num_gpus = len(getattr(wrapper, "device_ids", ()))
    if any(is_in_chunks(one, num_gpus) for one in (*args, *kwargs.values())):
        return Draft(wrapper, (), {}, callers_state=threads_state(), gap=_IN_CHUNKS)
    return Draft(wrapper, args, kwargs, callers_state=threads_state())


def _draft_of_function(  # noqa: PLR0913, PLR0917 - the parameters of `data_parallel`
    module: Any, inputs: object, device_ids: Any, output_device: Any, dim: int, module_kwargs: Any
) -> Draft:
    chosen = range(torch.cuda.device_count()) if device_ids is None else device_ids
    ids = [_index(device) for device in chosen]
    last = (*ids, 0)[0] if output_device is None else _index(output_device)
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    splitter = Splitter(module, ids, last, dim, function="data_parallel")
    return Draft(splitter, args, module_kwargs or {}, callers_state=threads_state())


def _index(device: Any) -> int:
    return device if isinstance(device, int) else torch.device(device).index or 0


def _hide_us(error: Exception) -> None:
    """Take our frames out of the traceback that `parallel_apply` writes into the message."""
    if error.args and isinstance(error.args[0], str):
        text = error.args[0]
        clean = without_watchers(text)
        if clean != text:
            error.args = (type(text)(clean), *error.args[1:])


@dataclass
class _Scattered:
    """What a call of scatter by hand was given, and what came of it."""

    args: Any
    kwargs: Any
    dim: int
    chunks: Any

    def is_source_of(self, inputs: Any) -> bool:
        """Return whether these inputs of replicas are the chunks."""
        mine, others = ([id(tensor) for tensor in tensors_in(value)] for value in (self.chunks, list(inputs)))
        return bool(mine) and mine == others


class _Local(threading.local):
    """What a thread is about: the call under way, and what it did by hand."""

    draft: Draft | None = None
    scattered: tuple[_Scattered, ...] = ()
    cuts: Cuts | None = None
    replicated: tuple[nn.Module, list[int], Any] | None = None
    applied: Draft | None = None


def is_recorded_by_pytorch() -> bool:
    """Whether this thread's operators go into a graph, and compute nothing that could be compared."""
    return bool(
        torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
    )


class CallRecorder:
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
        self.drafts: list[Draft] = []
        self._before_call = before_call or self.drafts.append
        self._keeps = before_call is None
        self._after_call = after_call
        self._after_gather = after_gather
        self._on_mishap = on_mishap
        self._is_aside = False
        self._local = _Local()

    def _safely(self, part: Callable[..., Any], *args: Any) -> Any:
        """Run a part of the recording; where it fails, note that, return None, and spare the program."""
        try:
            return part(*args)
        except Exception as error:  # noqa: BLE001 - values are the user's own, and may raise anything
            self._on_mishap(error)
            return None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every call of this process that splits a batch, for the length of a `with` block."""
        self._is_aside = here.is_aside
        with around(
            call=self._call,
            data_parallel=self._data_parallel,
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

    def _call(self, proceed: Callable[..., Any], wrapper: Any, *args: object, **kwargs: object) -> object:
        if self._is_anothers():
            return proceed(wrapper, *args, **kwargs)
        draft = self._safely(_draft_of_call, wrapper, args, kwargs)
        with self._recorded(draft):
            return proceed(wrapper, *args, **kwargs)

    def _data_parallel(  # noqa: PLR0913, PLR0917 - its own parameters
        self,
        proceed: Callable[..., object],
        module: Any,
        inputs: object,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        module_kwargs: Any = None,
    ) -> Any:
        given = (module, inputs, device_ids, output_device, dim, module_kwargs)
        if self._is_anothers():
            return proceed(*given)
        draft = self._safely(_draft_of_function, *given)
        with self._recorded(draft):
            return proceed(*given)

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
                self._on_mishap(mishap)
        self._safely(self._after_call, draft)

    def _failed(self, draft: Draft, error: Exception) -> None:
        _hide_us(error)
        draft.error = self._first_failure(draft) or raised(draft.stage, error)
        self._after_call(draft)

    def _announce(self, draft: Draft) -> None:
        with being(is_aside=True):
            self._before_call(draft)

    @staticmethod
    def _first_failure(draft: Draft) -> Raised | None:
        return draft.failures[min(draft.failures)] if draft.failures else None

    def _enter(self, stage: Stage) -> Draft | None:
        draft = None if self._is_anothers() else self._local.draft
        if draft is not None:
            draft.stage = stage
        return draft

    def _scatter(
        self, proceed: Callable[..., object], inputs: object, target_gpus: object, dim: int = 0
    ) -> object:
        draft = self._enter("scatter")
        chunks = proceed(inputs, target_gpus, dim)
        if draft is None and not self._is_anothers():
            self._safely(self._remember, inputs, {}, dim, chunks)
        return chunks

    def _scatter_kwargs(
        self, proceed: Callable[..., Any], inputs: Any, kwargs: Any, target_gpus: object, dim: int = 0
    ) -> object:
        draft = self._enter("scatter")
        chunks, named_chunks = proceed(inputs, kwargs, target_gpus, dim)
        if draft is not None:
            draft.delivered = self._safely(_paired, chunks, named_chunks) or []
        elif not self._is_anothers():
            self._safely(self._remember, inputs, kwargs or {}, dim, chunks)
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
            self._local.cuts = self._local.cuts or Cuts()
            self._safely(self._local.cuts.note, tensor, chunks, dim)
        return chunks

    def _remember(self, inputs: object, kwargs: object, dim: int, chunks: object) -> None:
        scattered = _Scattered(_as_arguments(inputs), kwargs, dim, chunks)
        self._local.scattered = (*self._local.scattered, scattered)[-2:]

    def _replicate(
        self, proceed: Callable[..., object], network: Any, devices: Any, *args: object, **kwargs: object
    ) -> object:
        draft = self._enter("replicate")
        replicas = proceed(network, devices, *args, **kwargs)
        if draft is None and not self._is_anothers():
            self._local.replicated = self._safely(
                lambda: (network, [_index(one) for one in devices], replicas)
            )
        return replicas

    def _parallel_apply(
        self,
        proceed: Callable[..., object],
        modules: Any,
        inputs: Any,
        kwargs_tup: object = None,
        devices: object = None,
    ) -> object:
        if self._is_anothers():
            return proceed(modules, inputs, kwargs_tup, devices)
        draft = self._enter("replica")
        if draft is not None:
            return self._apply(draft, proceed, modules, inputs, kwargs_tup, devices)
        draft = self._safely(self._by_hand, modules, inputs, kwargs_tup, devices)
        with self._recorded(draft):
            outputs = self._apply(draft, proceed, modules, inputs, kwargs_tup, devices)
        if draft is not None and not self._keeps:
            self._safely(draft.let_go)
        self._local.applied = draft
        return outputs

    def _apply(  # noqa: PLR0913, PLR0917 - the step's own parameters
        self,
        draft: Draft | None,
        proceed: Callable[..., object],
        modules: Any,
        inputs: Any,
        kwargs_tup: object,
        devices: Any,
    ) -> Any:
        watched = None
        if draft is not None:
            watched = self._safely(self._watched, draft, modules, inputs, kwargs_tup, devices)
        return proceed(watched or modules, inputs, kwargs_tup, devices)

    def _watched(
        self, draft: Draft, modules: Any, inputs: Any, kwargs_tup: object, devices: Any
    ) -> list[_Watched]:
        draft.stage = "replica"
        draft.callers_state = threads_state()  # a wrapper of the user's may have opened autocast by now
        draft.delivered = _paired(inputs, kwargs_tup)  # again: a user's own scatter is not watched
        if devices is not None:
            draft.devices = [_index(device) for device in devices]
        return [
            _Watched(replica, index, draft, self._safely, is_ours=self._keeps)
            for index, replica in enumerate(modules)
        ]

    def _by_hand(self, modules: Sequence[Any], inputs: Any, kwargs_tup: Any, devices: Any) -> Draft | None:
        """Put a call together from what was scattered and replicated by hand in this thread.

        Of functions there is none: PyTorch only calls them, and they are no replicas of a module.
        """
        if not modules or not all(isinstance(one, nn.Module) for one in modules):
            return None
        gap = ""
        known = self._local.replicated
        if known is not None and len(modules) and any(modules[0] is replica for replica in known[2]):
            module, ids, _ = known
        else:
            module, ids = modules[0], [_index(device) for device in devices or range(len(modules))]
            gap = "its replicas were not made by replicate"
        source = next((one for one in self._local.scattered if one.is_source_of(inputs)), None)
        joined = None
        if source is None and self._local.cuts is not None:
            joined = self._local.cuts.joined(_paired(inputs, kwargs_tup))
        if source is None and joined is None:
            gap = gap or "its chunks were not made by scatter"
        elif source is not None and kwargs_tup and any(kwargs_tup) and not source.kwargs:
            gap = gap or "its keyword arguments were not made by scatter_kwargs"
        self._local.scattered, self._local.replicated, self._local.cuts = (), None, None
        batch = joined or source
        splitter = Splitter(
            module, ids, (*ids, 0)[0], batch.dim if batch else 0, joined.shares if joined else ()
        )
        args, kwargs = (batch.args, batch.kwargs) if batch else ((), {})
        return Draft(splitter, tuple(args), kwargs, callers_state=threads_state(), gap=gap)

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
                self._safely(self._gather_failed, done, error)
            raise
        if done is not None:
            done.gathered = (result,)
            self._safely(self._after_gather, done)
            if done.frozen is not None:
                self._safely(done.let_go)
        return result

    def _gather_failed(self, done: Draft, error: Exception) -> None:
        done.stage, done.error = "gather", raised("gather", error)
        self._after_call(done)
