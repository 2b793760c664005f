"""All calls of DataParallel that a program makes: objects and functions, of any thread.

Listeners sit on four steps of the seam: a wrapper is built, it is called, `parallel_apply` reaches its
replicas, and `data_parallel`, the functional form. Nothing is stored on the program's own objects, so pickles
and copies stay as they were. Equal calls are counted, not kept.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from dpdemo.calls.arguments import Device, index_of, of_each_replica
from dpdemo.calls.live import CallFollower, LiveCall, Splitter
from dpdemo.calls.records import Records, Split, dim_of, ids_of
from dpdemo.calls.seam import Around
from dpdemo.calls.tokens import TokenCount, tell_tokens
from dpdemo.calls.trace import CallShapes, Trace, see_input, see_output
from dpdemo.results.execution import Use


@dataclass(eq=False)
class _CountedCall(LiveCall):
    """A call, with the shapes of its arguments as they were before it."""

    before: CallShapes = field(init=False)
    replicas: tuple[CallShapes, ...] | None = None
    tokens: Sequence[TokenCount] = ()

    def __post_init__(self) -> None:
        self.before = see_input(self.args, self.kwargs)

    def split(self, output: object) -> Split:
        """Return how it was split; with one GPU there is no `parallel_apply`, and the chunk is the batch."""
        ids, replicas = ids_of(self.wrapper), self.replicas
        outside = self.before if self.is_by_hand else see_output(self.before, output)
        if replicas is None:
            device = [torch.device("cuda", index) for index in ids]
            replicas = (outside._replace(input_device=device[0]),) if len(device) == 1 else ()
        return Split(ids, dim_of(self.wrapper), Trace(replicas, outside))


class Watch(CallFollower[_CountedCall]):
    """Collects the calls; `uses` lists them.

    Args:
        is_aside: returns whether the calling thread is not the program's own, and is left out.

    """

    def __init__(self, is_aside: Callable[[], bool] = lambda: False) -> None:
        super().__init__(is_aside)
        self._lock = threading.Lock()
        self._records = Records()

    def uses(self) -> tuple[Use, ...]:
        """List the calls so far, in the order of construction."""
        with self._lock:
            return self._records.uses()

    _begin = _CountedCall

    def _begin_by_hand(self, modules: Any, inputs: Any, kwargs_tup: Any, devices: Any) -> _CountedCall | None:
        if not len(modules):
            return None
        replicas = _see_inputs(of_each_replica(inputs, kwargs_tup), devices)
        ids = [(seen.input_device and seen.input_device.index) or 0 for seen in replicas]
        return _CountedCall(Splitter(modules[0], ids), (), {})

    def _follow(self, call: _CountedCall, run: Callable[[], Any]) -> Any:
        try:
            output = run()
        except BaseException:
            self._add(call, None)
            raise
        self._add(call, call.split(output))
        return output

    def _apply(self, call: _CountedCall, proceed: Around, modules: Any, *given: Any) -> Any:
        inputs, kwargs_tup, devices = given
        chunks = of_each_replica(inputs, kwargs_tup)
        before, tokens = _see_inputs(chunks, devices), _tell_all(modules, chunks)
        outputs = proceed(modules, *given)
        call.replicas, call.tokens = tuple(map(see_output, before, outputs)), tokens
        return outputs

    def build(self, proceed: Around, wrapper: nn.Module, *args: object, **kwargs: object) -> None:
        """Listen to a wrapper's construction."""
        proceed(wrapper, *args, **kwargs)
        if not self._is_anothers():
            with self._lock:
                self._records.of(wrapper)

    def _add(self, call: _CountedCall, split: Split | None) -> None:
        with self._lock:
            self._records.of(call.wrapper).add(split, call.tokens)


@contextmanager
def watching(is_aside: Callable[[], bool] = lambda: False) -> Iterator[Watch]:
    """Watch every DataParallel call of the process for the length of a `with` block.

    Args:
        is_aside: returns whether to leave out the calls of the calling thread.

    """
    watch = Watch(is_aside)
    with watch.following(build=watch.build):
        yield watch


def _see_inputs(inputs: Sequence[tuple[Any, Any]], devices: Sequence[Device] | None) -> list[CallShapes]:
    """Note what each replica gets, on the GPU of its chunk, or else where it will run."""
    found = []
    for index, given in enumerate(inputs):
        seen = see_input(*given)
        if seen.input_device is None or seen.input_device.type != "cuda":
            device = dict(enumerate(devices or ())).get(index, index)
            seen = seen._replace(input_device=torch.device("cuda", index_of(device)))
        found.append(seen)
    return found


def _tell_all(modules: Sequence[nn.Module], inputs: Sequence[tuple[Any, Any]]) -> list[TokenCount]:
    """Count the tokens of each replica; none where one of them does not tell."""
    found = []
    for module, given in zip(modules, inputs, strict=False):  # PyTorch refuses other numbers of them
        told = tell_tokens(module, *given)
        if told is None:
            return []
        found.append(told)
    return found
