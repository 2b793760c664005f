"""Running a user's program as `python script.py ARGS…` or `python -m pkg.mod ARGS…` would.

The program takes this process over: its module becomes `__main__`, and `sys.argv` and `sys.path[0]` become
its own, for good. `runpy.run_path` would take `__main__` away again at the end, and then neither a thread,
nor an atexit callback, nor a pickle could find the program's classes; so a script is run here, and only `-m`
by runpy.
"""

import importlib.util
import os
import runpy
import shutil
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from typing import Any

from dpdemo.errors import UsageError, about
from dpdemo.files import current_folder
from dpdemo.models.advice import advice
from dpdemo.models.frames import hide_ours, is_our_bug, is_ours

INTERRUPTED = 130
_LINE_BYTES = 256
_run_module_as_main: Any = vars(runpy)["_run_module_as_main"]  # what `python -m` itself calls


@dataclass(frozen=True, slots=True)
class Program:
    """A script, or with `is_module` a module by its name, and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def words(self) -> list[str]:
        """Its part of a command line, after `python` or after `dpdemo exec` and its options."""
        return [*["-m"] * self.is_module, self.name, *self.arguments]

    def __str__(self) -> str:
        return " ".join(["-m", self.name] if self.is_module else [self.name])


def find_program(name: str, arguments: Sequence[str] = (), *, is_module: bool = False) -> Program:
    """Check that there is such a program, without running any of it.

    Raises:
        UsageError: if the script or module does not exist or cannot be run.

    """
    here = current_folder()
    if not is_module and not Path(name).exists():
        name = _installed(name) or name
    with about("program"):
        (_check_module if is_module else _check_script)(name, here)
    return Program(name, tuple(arguments), is_module)


def _installed(name: str) -> str | None:
    """Find a command that is a Python script, as torchrun is: beside this Python, or where a shell looks."""
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None or os.sep in name:
        return None
    with Path(found).open("rb") as file:
        first_line = file.readline(_LINE_BYTES)
    return found if first_line.startswith(b"#!") and b"python" in first_line else None


def _check_script(name: str, here: Path) -> None:
    place = Path(name)
    if place.is_dir():
        if not (place / "__main__.py").is_file():
            raise UsageError(
                f"expected a script, got the directory {name!r} without a `__main__.py`",
                hint="name a file in it, or a package with -m",
            )
    elif not place.exists():
        raise UsageError(
            f"expected a script, got {name!r}, which does not exist",
            hint=f"a module is run with -m: dpdemo exec --gpus N -m {name}"
            if _is_module_name(name)
            else f"looked in {here}",
        )
    elif not os.access(place, os.R_OK):
        raise UsageError(f"expected a script that can be read, got {name!r}")


def _is_module_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.split(".")) and not name.endswith(".py")


def _check_module(name: str, here: Path) -> None:
    if not _is_module_name(name):
        better = name.removesuffix(".py").replace(os.sep, ".")
        raise UsageError(
            f"expected a module such as `pkg.mod`, got {name!r}",
            hint=f"a script is run without -m; a module is named without `.py`: -m {better}",
        )
    top = name.partition(".")[0]
    first = sys.path[0]
    sys.path[0] = str(here)
    try:
        found = importlib.util.find_spec(top)  # the top name's finding runs no code of the package
    finally:
        sys.path[0] = first
    if found is None:
        raise UsageError(
            f"expected a module, got {name!r}: there is no `{top}`",
            hint=f"looked in {here} and in what is installed for {sys.executable}",
        )


def run_program(program: Program) -> object:
    """Run the program and return what it leaves with: what `sys.exit` is to be called with.

    An exception that it does not catch is shown as Python shows it, by `sys.excepthook`, and gives 1; Ctrl-C
    gives 130.
    """
    sys.argv = [program.name, *program.arguments]
    names = _new_main()
    if program.is_module:
        sys.argv[0] = "-m"  # what Python says until the module is found
        folder, run = str(current_folder()), partial(_run_module_as_main, program.name)
    elif _has_main(program.name):
        folder, run = _joined(program.name), partial(_run_module_as_main, "__main__", alter_argv=False)
    else:
        folder = str(Path(program.name).resolve().parent)
        run = partial(_run_script, program.name, names)
    if not sys.flags.safe_path:
        sys.path[0] = folder
    try:
        run()
    except SystemExit as stop:
        return stop.code
    except BaseException as error:  # noqa: BLE001 - Python's own last resort, see `_show`
        _show(error)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return None


def _new_main() -> dict[str, Any]:
    """Put a fresh `__main__` in place of ours, and return its names."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    vars(main)["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):
        vars(main)["__annotations__"] = {}
    return vars(main)


def _has_main(name: str) -> bool:
    """Return whether this is a folder or an archive with a `__main__.py`: Python runs those too."""
    if Path(name).is_dir():
        return True
    import zipfile

    return not name.endswith((".py", ".pyc")) and zipfile.is_zipfile(name)


def _joined(name: str) -> str:
    return os.path.join(current_folder(), name)  # noqa: PTH118 - Python does not tidy it up either


def _run_script(name: str, names: dict[str, object]) -> None:
    path = _joined(name)
    loader: Any = (SourcelessFileLoader if name.endswith(".pyc") else SourceFileLoader)("__main__", path)
    names.update(__file__=path, __cached__=None, __loader__=loader)
    if name.endswith(".pyc"):
        code = loader.get_code("__main__")
    else:
        code = compile(loader.get_data(path), path, "exec", dont_inherit=True)
    exec(code, names)  # noqa: S102 - it is what was asked for


def _show(error: BaseException) -> None:
    """Do what Python does with an exception that nobody caught."""
    if not is_our_bug(error):
        error.__traceback__ = _without_ours(error.__traceback__)
        hide_ours(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
        if "RANK" not in os.environ:  # a rank's launcher reports the advice
            sys.stderr.writelines(f"hint: {line}\n" for line in advice(error))
    except Exception:  # noqa: BLE001 - the user's own hook may raise anything
        print("Error in sys.excepthook:", file=sys.stderr)  # noqa: T201 - Python's words
        traceback.print_exc()
        print("\nOriginal exception was:", file=sys.stderr)  # noqa: T201
        sys.__excepthook__(type(error), error, error.__traceback__)


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Remove dpdemo's frames before and between the program's frames."""
    kept: list[types.TracebackType] = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for frame in reversed(kept):
        frame.tb_next = rest
        rest = frame
    return rest
