"""A collective that is not over when gloo's part is: what follows runs on gloo's thread, and ends the work.

PyTorch's work of a future swallows the future's error in `wait()` and takes no time-out
(FutureWrappingWork in ProcessGroup.cpp), so `wait` is replaced.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import replace, wraps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import timedelta

_cpp: Any = torch._C._distributed_c10d
_then: Any = torch._C.Future.then
_wait: Any = _cpp.Work.wait
_failures: list[BaseException] = []
_outstanding: list[Any] = []
_callback = threading.local()
_NO_TIMEOUT = "FutureWrappingWork::wait() with finite timeout"


def note_outstanding(work: Any) -> None:
    """Remember a collective that the program may not wait for, until it is over."""
    forget()
    _outstanding.append(work)


def forget(work: Any = None) -> None:
    """Forget collectives that are over, and so their tensors, and one that the program has waited for.

    C++ waits for its own unseen (DistributedDataParallel's do): who called it asks for this afterwards.
    """
    if _outstanding:
        _outstanding[:] = [each for each in _outstanding if each is not work and not each.is_completed()]


def synchronise(*_: Any) -> None:
    """Wait for this process's collectives, as `torch.cuda.synchronize` waits for NCCL's streams.

    Not in a future's callback, which gloo runs before it ends the collective: PowerSGD's hook does that.
    """
    while _outstanding and not getattr(_callback, "is_running", False):
        _outstanding.pop().wait()


@contextlib.contextmanager
def callback() -> Iterator[None]:
    """Run a future's callback, which waits for no collective of this process."""
    before, _callback.is_running = getattr(_callback, "is_running", False), True
    try:
        yield
    finally:
        _callback.is_running = before


def work_of(result: Any) -> Any:
    """Return the work among the results of a collective."""
    boxed = result[-1] if isinstance(result, (tuple, list)) else result
    return _cpp.Work.unbox(boxed)


def after_all(works: Sequence[Any], outputs: Any, finish: Callable[[], object]) -> Any:
    """Return the work of `finish`, which runs once all `works` are over; its result is `outputs`."""
    future: torch.futures.Future[Any] = torch.futures.Future()

    def end(results: Iterable[Callable[[], object]]) -> None:
        try:
            for result in results:
                result()
            with torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView():
                finish()
        except Exception as error:  # noqa: BLE001 - the program's `wait` raises it
            fail(future, error)
        else:
            future.set_result(outputs)

    try:
        futures = [work.get_future() for work in works]
    except RuntimeError:  # gloo's reduce_scatter has none
        waits = [functools.partial(_wait, work) for work in works]
        threading._start_new_thread(end, (waits,))  # type: ignore[attr-defined] # it needs no GPUs
    else:
        both = futures[0] if len(futures) == 1 else torch._C._collect_all(futures)
        _then(both, lambda _: end(each.value for each in futures))
    return ended_by(future)


def ended_by(future: torch.futures.Future[Any]) -> Any:
    """Return the work that ends with a future."""
    return _cpp._create_work_from_future(future).boxed()


def fail(future: torch.futures.Future[Any], error: Exception) -> None:
    """End a future's work with an error, which the next `wait` raises."""
    _failures.append(error)
    future.set_exception(error)


def raise_failure(future: Any = None) -> None:
    """Raise the error that a future's work ended with, or without one the first that no one has seen."""
    if not _failures:
        return
    error = _failures[0] if future is None else future.value()
    if any(error is each for each in _failures):
        _failures.remove(error)
        raise error


for _name in ("_cuda_synchronize", "_accelerator_synchronizeDevice"):
    replace(torch._C, "gloo's collectives run beside the program", **{_name: synchronise})


@wraps(_cpp.Work, "wait", why="PyTorch's work of a future hides its error")
def _raising(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def wait(self: Any, timeout: timedelta | None = None) -> bool:
        try:
            result = original(self) if timeout is None else original(self, timeout)
        except RuntimeError as error:
            if timeout is None or _NO_TIMEOUT not in str(error):
                raise
            result = _wait_for(self.get_future(), timeout)
        forget(self)
        if _failures:
            future = None
            with contextlib.suppress(RuntimeError):  # gloo's sends have none
                future = self.get_future()
            if future is not None:
                raise_failure(future)
        return result

    return wait


def _wait_for(future: torch.futures.Future[Any], timeout: timedelta) -> bool:
    end = time.monotonic() + timeout.total_seconds()
    while not future.done():
        if time.monotonic() > end:
            raise torch.distributed.DistBackendError(f"the work did not end within {timeout}")
        time.sleep(0.001)
    return True
