"""Act on a module once the program imports it: importing it earlier would cost every start."""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any


class _Finder(MetaPathFinder):
    """Finds a module as Python does, and calls `then` with it once it is loaded."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return where the module is; programs ask that without importing it, too."""
        if fullname != self.name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            sys.meta_path.remove(self)
            del loader.exec_module
            load(module)
            self.then(module)

        loader.exec_module = exec_module


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with a module once it is imported, which may be now or never."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then))
