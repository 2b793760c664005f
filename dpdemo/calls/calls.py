"""All calls of DataParallel that a program makes: objects and functions, of any thread.

Listeners sit on four steps of the seam: a wrapper is built, it is called, `parallel_apply` reaches its
replicas, and `data_parallel`, the functional form. Nothing is stored on the program's own objects, so pickles
and copies stay as they were. Equal calls are counted, not kept.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from dpdemo.calls.arguments import Device, index_of, of_each_replica
from dpdemo.calls.records import Record, Records, Split, dim_of, ids_of
from dpdemo.calls.seam import Around, around
from dpdemo.calls.tokens import Told, tell_tokens
from dpdemo.calls.trace import Seen, Trace, see_input, see_output
from dpdemo.results.execution import Use

Keywords = Sequence[Mapping[str, object]] | None
"""The keyword arguments of each replica, as `parallel_apply` gets them."""

_NOTHING = Seen((), None, (), None)


class Watch:
    """Collects the calls; `uses` lists them.

    Args:
        is_aside: returns whether the calling thread is not the program's own, and is left out.

    """

    def __init__(self, is_aside: Callable[[], bool] = lambda: False) -> None:
        self._is_aside = is_aside
        self._lock = threading.Lock()
        self._records = Records()
        self._local = threading.local()

    def uses(self) -> tuple[Use, ...]:
        """List the calls so far, in the order of construction."""
        with self._lock:
            return self._records.uses()

    def build(self, proceed: Around, wrapper: nn.Module, *args: object, **kwargs: object) -> None:
        """Listen to a wrapper's construction."""
        proceed(wrapper, *args, **kwargs)
        if not self._is_aside():
            with self._lock:
                self._records.of_wrapper(wrapper)

    def call(self, proceed: Around, wrapper: nn.Module, *args: object, **kwargs: object) -> object:
        """Listen to a wrapper's call."""
        if self._is_aside():
            return proceed(wrapper, *args, **kwargs)
        run = partial(proceed, wrapper, *args, **kwargs)
        find = partial(self._records.of_wrapper, wrapper)
        return self._noted(run, see_input(args, kwargs), find, ids_of(wrapper), dim_of(wrapper))

    def data_parallel(  # noqa: PLR0913, PLR0917 - its own parameters
        self,
        proceed: Around,
        module: nn.Module,
        inputs: object,
        device_ids: Sequence[Device] | None = None,
        output_device: Device | None = None,
        dim: int = 0,
        module_kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Listen to a call of `torch.nn.parallel.data_parallel`."""
        run = partial(proceed, module, inputs, device_ids, output_device, dim, module_kwargs)
        if self._is_aside():
            return run()
        before = see_input(inputs if isinstance(inputs, tuple) else (inputs,), module_kwargs or {})
        ids = _chosen(device_ids)
        return self._noted(
            run, before, partial(self._records.of_kind, "data_parallel", module, ids), ids, dim
        )

    def parallel_apply(
        self,
        proceed: Around,
        modules: Sequence[nn.Module],
        inputs: Sequence[object],
        kwargs_tup: Keywords = None,
        devices: Sequence[Device] | None = None,
    ) -> object:
        """Listen to the call of all replicas, by a wrapper or by the program itself."""
        if self._is_aside():
            return proceed(modules, inputs, kwargs_tup, devices)
        given = of_each_replica(inputs, kwargs_tup)
        before = _see_inputs(given, devices)
        told = _tell_all(modules, given)
        outputs = proceed(modules, inputs, kwargs_tup, devices)
        replicas = tuple(map(see_output, before, outputs))
        calls: list[tuple[tuple[Seen, ...], list[Told]] | None] = getattr(self._local, "calls", [])
        if calls:
            calls[-1] = replicas, told
        elif len(modules):
            ids = tuple((seen.input_device and seen.input_device.index) or 0 for seen in replicas)
            find = partial(self._records.of_kind, "parallel_apply", modules[0], ids)
            self._add(find, Split(ids, 0, Trace(replicas, _NOTHING)), told)
        return outputs

    def _noted(
        self, run: Around, before: Seen, find: Callable[[], Record], ids: tuple[int, ...], dim: int
    ) -> object:
        """Run a call and count it, with what `parallel_apply` shows of its replicas meanwhile."""
        calls = self._local.__dict__.setdefault("calls", [])
        calls.append(None)
        try:
            output = run()
        except BaseException:
            self._add(find, None)
            raise
        finally:
            seen = calls.pop()
        outside = see_output(before, output)
        if seen is None:  # with one GPU there is no `parallel_apply`, and the chunk is the batch
            device = [torch.device("cuda", index) for index in ids]
            seen = ((outside._replace(input_device=device[0]),) if len(device) == 1 else ()), []
        self._add(find, Split(ids, dim, Trace(seen[0], outside)), seen[1])
        return output

    def _add(self, find: Callable[[], Record], split: Split | None, told: Sequence[Told] = ()) -> None:
        with self._lock:
            find().add(split, told)


@contextmanager
def watching(is_aside: Callable[[], bool] = lambda: False) -> Iterator[Watch]:
    """Watch every DataParallel call of the process for the length of a `with` block.

    Args:
        is_aside: returns whether to leave out the calls of the calling thread.

    """
    watch = Watch(is_aside)
    with around(
        build=watch.build,
        call=watch.call,
        parallel_apply=watch.parallel_apply,
        data_parallel=watch.data_parallel,
    ):
        yield watch


def _chosen(device_ids: Sequence[Device] | None) -> tuple[int, ...]:
    """Return the GPUs that `data_parallel` takes; none where what it was given names none."""
    if device_ids is None:
        return tuple(range(torch.cuda.device_count()))
    try:
        return tuple(map(index_of, device_ids))
    except (TypeError, ValueError, RuntimeError):  # PyTorch says so
        return ()


def _see_inputs(inputs: Sequence[tuple[Any, Any]], devices: Sequence[Device] | None) -> list[Seen]:
    """Note what each replica gets, on the GPU of its chunk, or else where it will run."""
    found = []
    for index, given in enumerate(inputs):
        seen = see_input(*given)
        if seen.input_device is None or seen.input_device.type != "cuda":
            device = dict(enumerate(devices or ())).get(index, index)
            seen = seen._replace(input_device=torch.device("cuda", index_of(device)))
        found.append(seen)
    return found


def _tell_all(modules: Sequence[nn.Module], inputs: Sequence[tuple[Any, Any]]) -> list[Told]:
    """Count the tokens of each replica; none where one of them does not tell."""
    found = []
    for module, given in zip(modules, inputs, strict=False):  # PyTorch refuses other numbers of them
        told = tell_tokens(module, *given)
        if told is None:
            return []
        found.append(told)
    return found
