"""Loading a user's own model by name: `pkg.mod:factory`. This runs the user's code."""

import importlib
import inspect
import os
import sys
from typing import Any

from torch import nn

from dpdemo.config import Config
from dpdemo.errors import UsageError
from dpdemo.failure import user_frames


def load_factory(target: str, config: Config) -> nn.Module:
    """Import `pkg.mod:factory` and call it; this runs the user's code.

    The current folder is importable, as under `python -m`. Parameters of the factory that are named like keys
    of the config (`input_size`, `output_size`, …) are given their values.

    Raises:
        UsageError: if it cannot be imported, raises, or gives no torch.nn.Module.

    """
    model, inputs = load_with_inputs(target, config)
    if inputs is not None:
        raise _no_module(target, (model, inputs))
    return model


def load_with_inputs(target: str, config: Config) -> tuple[nn.Module, Any]:
    """Load a model as `load_factory` does; the factory may return (model, inputs), else inputs are None.

    Raises:
        UsageError: if it cannot be imported, raises, or gives no torch.nn.Module.

    """
    factory = find_object(target, "key `model`")
    made = factory if isinstance(factory, nn.Module) else _call_factory(factory, target, config)
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise _no_module(target, made)
    return model, inputs


def _no_module(target: str, made: Any) -> UsageError:
    return UsageError(
        f"expected a torch.nn.Module from `{target}`, got {type(made).__name__} - at key `model`",
        hint="return the model itself",
    )


def find_object(target: str, where: str) -> Any:
    """Import what `pkg.mod:name` names; this runs the user's code.

    Raises:
        UsageError: if it cannot be imported or is not there.

    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"expected `pkg.mod:factory`, got {target[:80]!r} - at {where}")
    module = _import_user_module(module_name, target, where)
    factory: Any = module
    for part in attribute.split("."):
        factory = getattr(factory, part, None)
    if factory is None:
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise UsageError(
            f"expected a factory `{attribute}` in {module.__file__}, got none - at {where} ({target})",
            hint=f"it has {', '.join(names[:8])}"
            if names
            else "define a function there that returns the model",
        )
    return factory


def _import_user_module(name: str, target: str, where: str) -> Any:
    folder = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and name.startswith(str(error.name))
        raise UsageError(
            f"expected an importable module `{name}`, got {type(error).__name__}: {error} - "
            f"at {where} ({target})" + ("" if missing else user_frames(error)),
            hint=f"looked in {folder} and the installed packages" if missing else "",
        ) from error


def _call_factory(factory: Any, target: str, config: Config) -> Any:
    try:
        wanted = inspect.signature(factory).parameters if callable(factory) else {}
        return factory(**{key: value for key, value in config.model_dump().items() if key in wanted})
    except Exception as error:
        raise UsageError(
            f"expected a model from `{target}`, got {type(error).__name__}: {error} - at key `model`"
            + user_frames(error)
        ) from error
