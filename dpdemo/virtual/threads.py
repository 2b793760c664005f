"""Threads started inside a block see the virtual GPUs too.

PyTorch's dispatch modes are thread-local; so each new thread enters a `VirtualGpuMode` of its own before it
does anything else. Nothing else is handed on: a new thread starts on device 0, with gradients on and autocast
off, as with real GPUs.
"""

from __future__ import annotations

import threading
from typing import Any

from dpdemo.virtual import state
from dpdemo.virtual.dispatch import VirtualGpuMode

_bootstrap: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]


def bootstrap(self: threading.Thread) -> None:
    """Stand in for `Thread._bootstrap_inner`, through which every thread starts, whatever its `run` is."""
    if state.session is None:
        _bootstrap(self)
        return
    state.session.current.inside = True
    with VirtualGpuMode(state.session):
        _bootstrap(self)
