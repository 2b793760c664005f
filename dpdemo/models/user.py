"""Import what a target names, and build the user's model. This runs the user's code."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from dpdemo.config.fields import Config
from dpdemo.config.targets import Target, expect_file, looks_like_script, parse_target
from dpdemo.errors import DpdemoError, UsageError, about
from dpdemo.files import current_folder
from dpdemo.models.failure import user_frames, users_code
from dpdemo.models.libraries import InputSizes
from dpdemo.models.libraries.build import make_library_model

Given = nn.Module | Callable[..., object]
"""The user's model: the model itself, or a class or function that builds it."""


def load_with_inputs(target: str, config: Config) -> tuple[nn.Module, object]:
    """Load the model that a target names, and the inputs that its factory may return beside it, else None.

    The current folder is importable, as under `python -m`. Parameters of the factory that are named like keys
    of the config (`input_size`, `output_size`, …) are given their values.

    Raises:
        UsageError: if it cannot be imported, raises, or gives no torch.nn.Module.

    """
    with about("model"):
        return make_model(find_object(target), target, config.to_dict())


def make_model(
    given: Given, name: str, values: Mapping[str, object] | None = None
) -> tuple[nn.Module, object]:
    """Take a model as it is, or call what builds it: the one contract of factories, in every command.

    Args:
        given: a model, or a class or function that returns one, or (model, inputs).
        name: its name in messages.
        values: what the factory's parameters of these names are given. Without it those that have no default
            get the config's defaults.

    Raises:
        UsageError: if the factory raises or exits, or gives no torch.nn.Module.

    """
    made = given if isinstance(given, nn.Module) else _call_factory(given, name, values)
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"expected a torch.nn.Module, or (model, inputs), from `{name}`, got {type(model).__name__}",
            hint="return the model itself",
        )
    return model, inputs


def call_factory(factory: Callable[..., object], values: Mapping[str, object] | None = None) -> object:
    """Call a factory with the values that its parameters are named for; what it raises is let through."""
    parameters = inspect.signature(factory).parameters.items()
    if values is None:
        values = Config().to_dict()
        named = {key for key, parameter in parameters if parameter.default is inspect.Parameter.empty}
    else:
        named = {key for key, _ in parameters}
    return factory(**{key: value for key, value in values.items() if key in named})


def _call_factory(factory: object, name: str, values: Mapping[str, object] | None) -> object:
    if not callable(factory):
        raise UsageError(
            f"expected a model, or a class or function that builds one, in `{name}`, got "
            f"{type(factory).__name__}"
        )
    try:
        with users_code():
            return call_factory(factory, values)
    except DpdemoError:
        raise
    except Exception as error:
        raise UsageError(
            f"expected a model from `{name}`, got {type(error).__name__}: {error}" + user_frames(error),
            hint=_what_it_needs(factory, name) if isinstance(error, TypeError) else "",
        ) from error


def _what_it_needs(factory: Callable[..., object], name: str) -> str:
    """Explain how to pass a factory arguments that are not keys of the config."""
    known = Config().to_dict()
    missing = [
        key
        for key, parameter in inspect.signature(factory).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        and key not in known
    ]
    if not missing:
        return ""
    call = f"{name.rpartition(':')[2]}({', '.join(f'{key}=...' for key in missing)})"
    file = name.rpartition(":")[0]
    named = f"name it: `{file}:make`" if file else "give that"
    return f"write a function that gives them, `def make(): return {call}`, and {named}"


def find_object(target: str) -> Any:
    """Import what a target names: `model.py:Net`, `pkg.mod:Net`, or a library's model, as what builds it.

    Raises:
        UsageError: if it cannot be imported or does not exist.

    """
    try:
        return _find(parse_target(target))
    except UsageError as error:
        if not error.raw_hint and looks_like_script(target):
            error.raw_hint = f"`dpdemo exec --check {target}` runs a program and checks what it calls"
        raise


def _find(parsed: Target) -> Any:
    if parsed.library:
        return partial(make_library_model, parsed.library, parsed.name, InputSizes())
    if parsed.file:
        module, name = _import_file(parsed), parsed.name
    else:
        module, name = _import_module(parsed)
    if not name:
        return _only_model(module)
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise UsageError(
            f"expected `{name}` in {module.__file__ or module.__name__}, got none",
            hint=_what_there_is(module),
        )
    return found


def _what_there_is(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return f"it has {', '.join(names[:8])}" if names else "define a function there that returns the model"


def _only_model(module: ModuleType) -> object:
    """Find the one model of a module: a class of its own that is a Module, or a ready one."""
    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, nn.Module)
        or (inspect.isclass(value) and issubclass(value, nn.Module) and value.__module__ == module.__name__)
    }
    if len(found) == 1:
        return next(iter(found.values()))
    file = os.path.relpath(str(module.__file__))
    raise UsageError(
        f"expected one torch.nn.Module in {file}, got {', '.join(found) or 'none'}",
        hint=f"name one: `{file}:{next(iter(found), 'make_model')}`",
    )


def _import_file(target: Target) -> ModuleType:
    path = Path(target.file)
    expect_file(target)
    name, root = _module_of(path.resolve())
    for known in (sys.modules.get(name), sys.modules.get(f"_{name}")):
        if known is not None and getattr(known, "__file__", None) == str(path.resolve()):
            return known
    _make_importable(str(root))
    if name in sys.modules or name in sys.stdlib_module_names:
        return _run_import(lambda: _load_beside(f"_{name}", path.resolve()), name)
    return _run_import(lambda: importlib.import_module(name), name)


def _module_of(path: Path) -> tuple[str, Path]:
    """Return the name under which a file is imported, and the folder that is put on the path."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def _load_beside(name: str, path: Path) -> ModuleType:
    """Load a file whose own name another module has already."""
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _import_module(target: Target) -> tuple[ModuleType, str]:
    """Import a target's module; without a colon the last parts may be a name in it."""
    _make_importable(str(current_folder()))
    module, names = target.module, [target.name] if target.name else []
    while not target.name and "." in module and not _exists(module):
        module, _, last = module.rpartition(".")
        names.insert(0, last)
    return _run_import(lambda: importlib.import_module(module), module), ".".join(names)


def _exists(module: str) -> bool:
    try:
        with users_code():
            return importlib.util.find_spec(module) is not None
    except Exception:  # noqa: BLE001 - finding `pkg.mod` runs the code of `pkg`
        return False


def _make_importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _run_import(load: Callable[[], ModuleType], name: str) -> ModuleType:
    try:
        with users_code():
            return load()
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and name.startswith(str(error.name))
        raise UsageError(
            f"expected an importable module `{name}`, got {type(error).__name__}: {error}"
            + ("" if missing else user_frames(error)),
            hint=f"looked in {current_folder()} and the installed packages" if missing else "",
        ) from error
