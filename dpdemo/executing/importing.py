"""Act on a module once the program imports it: importing it earlier would cost every start."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any


class _Finder(MetaPathFinder):
    """Finds a module as Python does, and calls `then` with it once it is loaded."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002 - Python's
        """Return where the module is."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                self.then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with a module once it is imported, which may be now or never."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then))
