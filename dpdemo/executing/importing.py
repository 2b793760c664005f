"""Act on a module once the program imports it: importing it earlier would cost every start."""

import sys
from collections.abc import Callable
from typing import Any

from dpdemo.executing.startup.sitecustomize import Finder


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with a module once it is imported, which may be now or never."""
    if name in sys.modules:
        then(sys.modules[name])
        return

    def run(module: Any, load: Callable[[], None]) -> None:
        load()
        then(module)

    sys.meta_path.insert(0, Finder(name, run))
