"""Functions that run once a module is imported, and the names that a process and its children share.

It knows the standard library alone: `sitecustomize.py` loads it where dpdemo cannot be imported yet.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
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


class Finder(MetaPathFinder):
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
        # those before it were asked, and another of this kind would ask it again
        later = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ()
        found = (finder.find_spec(fullname, path, target) for finder in later)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: object) -> None:
        load = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
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
        sys.meta_path.insert(0, Finder(name, run))


@contextlib.contextmanager
def without_unfinished(package: str) -> Iterator[None]:
    """Hide modules of a package that are being imported, so that an import within one may import them whole.

    Python hands out what `sys.modules` has when an import ends: the whole module, or the hidden one again.
    """
    unfinished = {
        name: module
        for name, module in list(sys.modules.items())
        if name.startswith(f"{package}.") and getattr(module.__spec__, "_initializing", False)
    }
    for name in unfinished:
        del sys.modules[name]
    try:
        yield
    finally:
        for name, module in unfinished.items():
            sys.modules.setdefault(name, module)
