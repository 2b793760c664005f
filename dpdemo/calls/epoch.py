"""The batches of an epoch: what reached each replica of one DataParallel object, and what came out of it."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import accumulate
from typing import Any

from torch import nn

from dpdemo.calls.seam import Around, around
from dpdemo.calls.trace import CallShapes, Trace, see
from dpdemo.results.batches import BatchGroup
from dpdemo.results.devices import Devices


class ReplicaObserver:
    """Notes what reached each replica of one DataParallel module, batch by batch.

    Replicas are observed where `parallel_apply` calls them. On one GPU or none DataParallel calls its module
    itself; there the module's `forward` is replaced, which costs less than a hook.
    """

    def __init__(self, wrapper: nn.Module, split: nn.Module) -> None:
        self._seen: tuple[CallShapes, ...] = ()
        self._passed: tuple[tuple[object, ...], object] | None = None
        self._thread = threading.get_ident()
        self._is_inside = False
        self._close = ExitStack()
        if isinstance(wrapper, nn.DataParallel) and len(wrapper.device_ids) > 1:
            self._close.enter_context(around(parallel_apply=self._parallel_apply))
        else:
            self._close.callback(self._replace_forward(split))

    def _parallel_apply(
        self, proceed: Around, modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
    ) -> Any:
        if self._is_inside or threading.get_ident() != self._thread:  # a DataParallel inside a replica
            return proceed(modules, inputs, kwargs_tup, devices)
        self._is_inside = True
        try:
            outputs = proceed(modules, inputs, kwargs_tup, devices)
        finally:
            self._is_inside = False
        if kwargs_tup is not None and any(kwargs_tup):
            inputs = [(*args, *kwargs.values()) for args, kwargs in zip(inputs, kwargs_tup, strict=True)]
        self._seen = tuple([see(*call) for call in zip(inputs, outputs, strict=True)])
        return outputs

    def _replace_forward(self, split: nn.Module) -> Callable[[], object]:
        """Put a watched `forward` into the module; the result puts back its own."""
        attributes, forward = vars(split), split.forward

        def watched(*args: object, **kwargs: object) -> object:
            output = forward(*args, **kwargs)
            self._seen = (see((*args, *kwargs.values()) if kwargs else args, output),)
            self._passed = args, output
            return output

        overridden = {name: attributes[name] for name in ("forward",) if name in attributes}
        attributes["forward"] = watched
        return lambda: (attributes.pop("forward"), attributes.update(overridden))

    def take(self) -> tuple[CallShapes, ...]:
        """Return what the replicas of the last batch saw, in their order."""
        seen, self._seen = self._seen, ()
        return seen

    def outside(self, given: tuple[object, ...], result: object) -> CallShapes:
        """Record a call of the wrapper; without GPUs its module got the same objects, recorded already."""
        if self._passed is not None:
            args, output = self._passed
            if result is output and len(args) == len(given) == 1 and given[0] is args[0]:
                return self._seen[0]
        return see(given, result)

    def close(self) -> None:
        """Stop looking."""
        self._close.close()


class EpochRecorder:
    """Collects the batches of an epoch, neighbouring equal ones as one group."""

    def __init__(self, devices: Devices, dim: int) -> None:
        self._devices = devices
        self._dim = dim
        self._last: tuple[tuple[CallShapes, ...], CallShapes] | None = None
        self._traces: list[Trace] = []
        self._counts: list[int] = []
        self.num_batches = 0

    def add(self, replicas: tuple[CallShapes, ...], outside: CallShapes) -> None:
        """Record one batch: what each replica saw, and what the caller saw."""
        batch = (replicas, outside)
        if batch == self._last:
            self._counts[-1] += 1
        else:
            self._last = batch
            self._traces.append(Trace(*batch))
            self._counts.append(1)
        self.num_batches += 1

    def groups(self) -> tuple[BatchGroup, ...]:
        """Return what was recorded so far."""
        firsts = accumulate(self._counts, initial=1)
        kinds = zip(self._traces, firsts, self._counts, strict=False)
        return tuple(trace.group(first, count, self._dim, self._devices) for trace, first, count in kinds)
