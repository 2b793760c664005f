"""Where the tensors of a TorchScript file were: C++, which writes it, notes the CPU for all of them.

So a module that is saved inside a block gets a small file beside it in its archive, which other programs do
not ask for, and `torch.jit.load` without `map_location` puts each tensor back on its device.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import UnsupportedOpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_RECORD = "dpdemo_devices.json"
_CPU = "cpu"


def note(module: Any, graphs: Iterable[Any], options: dict[str, Any]) -> None:
    """Add where the tensors of `module` are to the options that it is saved with, if any is on a GPU.

    Raises:
        UnsupportedOpError: constants of its code lie on several GPUs.

    """
    tensors = {path: str(getattr(owner, name).device) for path, owner, name in _tensors_of(module)}
    constants = {device for device in _constants_in(graphs) if device != _CPU}
    if len(constants) > 1:
        raise UnsupportedOpError(
            f"torch.jit.save: constants in the code of {type(module).__name__} lie on several GPUs "
            f"({', '.join(sorted(constants))}), of which a file could note only one; move them to one GPU"
        )
    if constants or any(device != _CPU for device in tensors.values()):
        record = {"tensors": tensors, "constants": next(iter(constants), None)}
        options["_extra_files"] = {**(options.get("_extra_files") or {}), _RECORD: json.dumps(record)}


def _tensors_of(module: Any) -> Iterator[tuple[str, torch.nn.Module, str]]:
    """Yield the path, the owner and the name of each parameter, buffer and other attribute that is known."""
    if not isinstance(module, torch.nn.Module):  # a function, which has constants alone
        return
    for prefix, owner in module.named_modules():
        kinds = getattr(owner, "_concrete_type", None)
        others = kinds.get_attributes() if kinds is not None else {}
        own = [*dict(owner.named_parameters(recurse=False)), *dict(owner.named_buffers(recurse=False))]
        for name in dict.fromkeys([*own, *others]):
            if isinstance(getattr(owner, name, None), torch.Tensor):
                yield f"{prefix}.{name}" if prefix else name, owner, name


def _constants_in(graphs: Iterable[Any]) -> Iterator[str]:
    for graph in graphs:
        for node in graph.findAllNodes("prim::Constant", True):
            if node.hasAttribute("value") and node.kindOf("value") == "t":
                yield str(node.t("value").device)


def load(
    original: Callable[..., Any], file: Any, map_location: Any, extra: dict[str, Any] | None, *options: Any
) -> Any:
    """Load a module: to `map_location`, or without one to where its tensors were."""
    if map_location is not None:
        return original(file, _numbered(map_location), extra, *options)
    found = {**(extra or {}), _RECORD: ""}
    start = file.tell() if hasattr(file, "tell") else None
    loaded = original(file, None, found, *options)
    record = json.loads(found.pop(_RECORD) or "{}")
    if extra is not None:
        extra.update(found)
    if record.get("constants"):  # C++ puts them somewhere while it reads the file, and at no other time
        if start is not None:
            file.seek(start)
        loaded = original(file, torch.device(record["constants"]), None, *options)
    for path, device in record.get("tensors", {}).items():
        _put(loaded, path, device)
    return loaded


def _numbered(map_location: Any) -> Any:
    """Name the current GPU where just "cuda" is named: C++ would ask its own devices which one that is."""
    if isinstance(map_location, str | torch.device):
        device = torch.device(map_location)
        if device.type == "cuda" and device.index is None:
            return torch.device("cuda", torch.cuda.current_device())
    return map_location


def _put(loaded: Any, path: str, device: str) -> None:
    *prefix, name = path.split(".")
    owner = functools.reduce(getattr, prefix, loaded)
    tensor = getattr(owner, name)
    if isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad:
        tensor.data = tensor.data.to(device)
    else:
        setattr(owner, name, tensor.to(device))
