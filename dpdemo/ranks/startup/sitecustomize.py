"""Python imports this when it starts; in a child of `dpdemo exec` virtual GPUs open when torch is imported.

It knows the standard library alone, and costs nothing where torch is never imported.
"""

import importlib.util
import os
import signal
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).parent
_PACKAGE = _HERE.parent.parent


def _load_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_dpdemo_hook", _PACKAGE / "startup" / "hook.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018, S101 - it has a loader for a .py file
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hook = _load_hook()


def _open_gpus(load: Callable[[ModuleType], None], torch: ModuleType) -> None:
    """Load torch while real GPUs are hidden, and open the virtual ones."""
    chosen = os.environ.get(hook.VISIBLE)
    os.environ[hook.VISIBLE] = hook.HIDDEN
    # torch warns on import if NumPy is not installed; `dpdemo exec` in one process ignores that, too
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    load(torch)
    if hook.GPUS not in os.environ:
        return
    if importlib.util.find_spec("dpdemo") is None:  # as where the parent runs from a folder of sources
        spec = importlib.util.spec_from_file_location(
            "dpdemo", _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
        )
        assert spec is not None and spec.loader is not None  # noqa: PT018, S101 - it has a loader for a .py file
        sys.modules["dpdemo"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    with hook.without_unfinished("dpdemo"):  # a program may import `dpdemo.virtual` before torch
        hardware = importlib.import_module("dpdemo.ranks.hardware").Hardware
        hardware.from_text(os.environ[hook.GPUS]).open_until_exit(is_launched=_is_launched())
    if chosen is not None:
        os.environ[hook.VISIBLE] = chosen


def _import_next() -> None:
    """Import the `sitecustomize` that this one hides, if there is one."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _is_launched() -> bool:
    """Return whether this process is a rank that `dpdemo exec --ranks` started, and none of its children."""
    return os.environ.get(hook.LAUNCHER) == str(os.getppid())


def _end_with_launcher() -> None:
    """Ask Linux to end this rank when its launcher ends, in whatever way."""
    if sys.platform == "linux" and _is_launched():
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _start() -> None:
    _end_with_launcher()
    sys.path[:] = [folder for folder in sys.path if folder != str(_HERE)]
    if os.environ.get(hook.VISIBLE) == hook.HIDDEN:
        del os.environ[hook.VISIBLE]
        os.putenv(hook.VISIBLE, hook.HIDDEN)  # children inherit it again
    if hook.GPUS in os.environ:
        sys.meta_path.insert(0, hook.Finder("torch", _open_gpus))
    _import_next()


if __name__ == "sitecustomize":
    _start()
