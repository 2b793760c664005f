"""Python imports this when it starts; in a child of `dpdemo exec` virtual GPUs open when torch is imported.

It knows the standard library alone, and costs nothing where torch is never imported.
"""

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

GPUS = "DPDEMO_CHILDREN_GPUS"
"""The GPUs that children open, as `Hardware.to_text` writes them."""
PATH = "PYTHONPATH"
VISIBLE = "CUDA_VISIBLE_DEVICES"
HIDDEN = "hidden-by-dpdemo"
"""No GPU is called so: real GPUs are hidden from a process that has this in CUDA_VISIBLE_DEVICES."""

LAUNCHER = "DPDEMO_RANKS_LAUNCHER"
"""The process that launched the ranks of a program and prints the traceback of one that fails."""

Load = Callable[[ModuleType], None]
_HERE = Path(__file__).parent


class _Finder(MetaPathFinder):
    """Finds a module as Python does, and lets `run` load it, once."""

    def __init__(self, name: str, run: Callable[[Load, ModuleType], None]) -> None:
        self.name, self.run = name, run

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return where the module is; programs ask that without importing it, too."""
        if fullname != self.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: object) -> None:
        load = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # type: ignore[attr-defined]
            self.run(load, module)
            sys.meta_path.remove(self)

        loader.exec_module = exec_module  # type: ignore[attr-defined]


def when_imported(name: str, then: Callable[[ModuleType], object]) -> None:
    """Call `then` with a module once it is imported, which may be now or never: to import it costs time."""

    def run(load: Load, module: ModuleType) -> None:
        load(module)
        then(module)

    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, run))


def _open_gpus(load: Load, torch: ModuleType) -> None:
    """Load torch while real GPUs are hidden, and open the virtual ones."""
    chosen = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = HIDDEN
    load(torch)
    if GPUS not in os.environ:
        return
    if importlib.util.find_spec("dpdemo") is None:  # as where the parent runs from a folder of sources
        package = _HERE.parent.parent
        spec = importlib.util.spec_from_file_location(
            "dpdemo", package / "__init__.py", submodule_search_locations=[str(package)]
        )
        assert spec is not None and spec.loader is not None  # noqa: PT018, S101 - it has a loader for a .py file
        sys.modules["dpdemo"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    hardware = importlib.import_module("dpdemo.executing.hardware").Hardware  # which imports this file
    hardware.from_text(os.environ[GPUS]).open_until_exit(is_launched=_is_launched())
    if chosen is not None:
        os.environ[VISIBLE] = chosen


def _import_next() -> None:
    """Import the `sitecustomize` that this one hides, if there is one."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _is_launched() -> bool:
    """Return whether this process is a rank that `dpdemo exec --ranks` started, and none of its children."""
    return os.environ.get(LAUNCHER) == str(os.getppid())


def _end_with_launcher() -> None:
    """Ask Linux to end this rank when its launcher ends, in whatever way."""
    if sys.platform == "linux" and _is_launched():
        import ctypes

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _start() -> None:
    _end_with_launcher()
    sys.path[:] = [folder for folder in sys.path if folder != str(_HERE)]
    if os.environ.get(VISIBLE) == HIDDEN:
        del os.environ[VISIBLE]
        os.putenv(VISIBLE, HIDDEN)  # children inherit it again
    if GPUS in os.environ:
        sys.meta_path.insert(0, _Finder("torch", _open_gpus))
    _import_next()


if __name__ == "sitecustomize":
    _start()
