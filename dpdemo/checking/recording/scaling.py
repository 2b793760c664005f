"""The factor of a GradScaler in a backward pass: gradients are judged as they are once unscaled."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.amp import GradScaler

from dpdemo.calls.tree import tensors_in
from dpdemo.virtual.applying import Patch, applied

_MAX_PASSES = 16


class Scales:
    """Notes by which factor a GradScaler has multiplied what each backward pass began with."""

    def __init__(self) -> None:
        self._of_pass: dict[int, float] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def watching(self, on_mishap: Callable[[Exception], None]) -> Iterator[None]:
        """Watch every GradScaler of this process, for the length of a `with` block."""
        proceed, follow = GradScaler.scale, self._follow

        def scale(self: GradScaler, outputs: Any) -> Any:
            scaled = proceed(self, outputs)
            try:
                follow(self, scaled)
            except Exception as error:  # noqa: BLE001 - a scaler of the user's own may raise anything
                on_mishap(error)
            return scaled

        with applied([Patch(GradScaler, "scale", scale, "gradients are compared unscaled")]):
            yield

    @property
    def factor(self) -> float:
        """The factor in the backward pass under way in this thread; 1 where no scaler has a part in it."""
        return self._of_pass.get(torch._C._current_graph_task_id(), 1.0)

    def _follow(self, scaler: GradScaler, scaled: Any) -> None:
        """Note the factor in each backward pass that begins at a scaled loss."""
        if not scaler.is_enabled():
            return
        with torch._C._DisableTorchDispatch():  # to read it is no move of the program's
            factor = scaler.get_scale()

        def note(_: torch.Tensor) -> None:
            with self._lock:
                while len(self._of_pass) >= _MAX_PASSES:
                    del self._of_pass[next(iter(self._of_pass))]
                self._of_pass[torch._C._current_graph_task_id()] = factor

        for tensor in tensors_in(scaled):
            if tensor.requires_grad:
                tensor.register_hook(note)  # type: ignore[no-untyped-call] # PyTorch's own
