"""A call that splits a batch while it is under way: one record, which whoever follows calls extends."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from dpdemo.calls.arguments import Device, index_of
from dpdemo.calls.seam import Around, around


@dataclass(frozen=True, eq=False)
class Splitter:
    """Stands for the DataParallel object of a call that has none: what can be read of one."""

    module: nn.Module
    device_ids: list[int]
    output_device: int = 0
    dim: int = 0
    chunks: tuple[int, ...] = ()
    """The rows of each GPU, where they are not DataParallel's."""
    function: str = "parallel_apply"
    """The function that the program splits by."""


@dataclass(eq=False)
class LiveCall:
    """A call with its live values: of a wrapper, of `data_parallel`, or of `parallel_apply` alone.

    `CallFollower` makes it before the call, with the arguments as the program gave them.
    """

    wrapper: "nn.DataParallel[Any] | Splitter"
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def is_by_hand(self) -> bool:
        """Whether the program calls `parallel_apply` itself; it may gather the results later, or never."""
        return isinstance(self.wrapper, Splitter) and self.wrapper.function == "parallel_apply"


CallT = TypeVar("CallT", bound=LiveCall)


class _Local(threading.local):
    """The call that a thread has under way."""

    call: Any = None


class CallFollower(Generic[CallT]):
    """Follows every call that splits a batch, in any thread, from its beginning to its end.

    A subclass begins the record of a call, or returns None: then it is not followed. It runs the whole call
    (`_follow`), and its replicas (`_apply`): `given` is the rest of what `parallel_apply` gets.
    """

    _begin: Callable[[Any, tuple[Any, ...], dict[str, Any]], CallT | None]
    _begin_by_hand: Callable[[Any, Any, Any, Any], CallT | None]
    _follow: Callable[[CallT, Callable[[], Any]], Any]
    _apply: Callable[..., Any]

    def __init__(self, is_anothers: Callable[[], bool]) -> None:
        self._is_anothers = is_anothers
        self._local = _Local()

    def following(self, **steps: Around) -> AbstractContextManager[None]:
        """Follow the calls of this process for the length of a `with` block, and listen to more steps."""
        call = partial(self._split, lambda wrapper, *args, **kwargs: (wrapper, args, kwargs))
        function = partial(self._split, _of_function)
        return around(call=call, data_parallel=function, parallel_apply=self._parallel_apply, **steps)

    def _split(self, describe: Callable[..., Any], proceed: Around, /, *args: Any, **kwargs: Any) -> Any:
        run = partial(proceed, *args, **kwargs)
        return run() if self._is_anothers() else self._run(self._begin(*describe(*args, **kwargs)), run)

    def _parallel_apply(
        self, proceed: Around, modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
    ) -> Any:
        given = modules, inputs, kwargs_tup, devices
        if self._is_anothers():
            return proceed(*given)
        if self._local.call is not None:
            return self._apply(self._local.call, proceed, *given)
        call = self._begin_by_hand(*given)
        return self._run(
            call, partial(self._apply, call, proceed, *given) if call else partial(proceed, *given)
        )

    def _run(self, call: CallT | None, run: Callable[[], Any]) -> Any:
        """Run a call, and let its steps in this thread find it."""
        outer, self._local.call = self._local.call, call
        try:
            return run() if call is None else self._follow(call, run)
        finally:
            self._local.call = outer


def _of_function(  # noqa: PLR0913, PLR0917 - the parameters of `data_parallel`
    module: Any,
    inputs: object,
    device_ids: Sequence[Device] | None = None,
    output_device: Device | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> tuple[Splitter, tuple[Any, ...], dict[str, Any]]:
    """Describe a call of `data_parallel` as one of a wrapper; without GPUs where it names none."""
    try:
        ids = list(map(index_of, range(torch.cuda.device_count()) if device_ids is None else device_ids))
        last = (*ids, 0)[0] if output_device is None else index_of(output_device)
    except Exception:  # noqa: BLE001 - PyTorch raises it again
        ids, last = [], 0
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return Splitter(module, ids, last, dim, function="data_parallel"), args, module_kwargs or {}
