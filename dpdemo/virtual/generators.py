"""`torch.Generator(device="cuda:1")`: a CPU generator that says it is a GPU's."""

from __future__ import annotations

from typing import Any

import torch

from dpdemo.virtual.state import as_device, gpu_index

_Generator: Any = torch._C.Generator


# The GPUs of the generators that are alive, by the address of C++'s object: an operator's arguments reach
# `dispatch.py` through C++, which makes new Python objects for them.
_homes: dict[int, torch.device] = {}


class VirtualGenerator(_Generator):  # type: ignore[misc]
    """A GPU's generator; to C++ it is a CPU generator like any other."""

    home: torch.device

    @property
    def device(self) -> torch.device:
        """The GPU that the generator belongs to."""
        return self.home

    def __del__(self) -> None:
        _homes.pop(self._cdata, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.home, self.get_state())


def on_gpu(device: torch.device) -> VirtualGenerator:
    """Make the generator of one GPU."""
    generator = VirtualGenerator()
    generator.home = _homes[generator._cdata] = device
    return generator


def kind_of_device(generator: Any) -> str:
    """Return the type of device that `generator` draws for."""
    home = _homes.get(generator._cdata)
    return str((home or generator.device).type)


def _rebuild(device: torch.device, state: torch.Tensor) -> torch.Generator:
    generator: torch.Generator = torch.Generator(device=device)
    generator.set_state(state)
    return generator


class _GeneratorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Generator)

    def __call__(cls, device: Any = "cpu") -> torch.Generator:
        wanted = torch.device(as_device("cpu" if device is None else device))  # type: ignore[call-overload]
        index = gpu_index(wanted)
        return _Generator(wanted) if index is None else on_gpu(torch.device("cuda", index))


class GeneratorName(metaclass=_GeneratorType):
    """Stands in for the name `torch.Generator`: it makes generators, and knows them."""
