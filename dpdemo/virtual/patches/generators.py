"""`torch.Generator(device="cuda:1")`: a generator that says it is a GPU's.

Its state is CUDA's: a seed and an offset, 16 bytes (ATen/cuda/CUDAGeneratorImpl.cpp). To C++ it is a
generator of the CPU like any other; with `virtual_gpus(random="cpu")` it is nothing else, and has its state.
"""

from typing import Any, Self

import torch

from dpdemo.virtual.applying import replace
from dpdemo.virtual.cuda_random.launch import Stream
from dpdemo.virtual.patches.names import name_for
from dpdemo.virtual.state import as_device, gpu_index, the_session

_Generator: Any = torch._C.Generator


# The generators of GPUs that are alive, by the address of C++'s object: an operator's arguments reach
# `dispatch.py` through C++, which makes new Python objects for them.
_homes: dict[int, tuple[torch.device, Stream]] = {}


class _GpuGenerator(_Generator):  # type: ignore[misc]
    """A GPU's generator that draws the CPU's numbers; to C++ it is a CPU generator like any other."""

    home: torch.device
    stream: Stream

    @property
    def device(self) -> torch.device:
        """The GPU that the generator belongs to."""
        return self.home

    def clone_state(self) -> "_GpuGenerator":
        """Return another generator in the same state."""
        clone = _on(type(self), self.home)
        clone.set_state(self.get_state())
        return clone

    def __del__(self) -> None:
        _homes.pop(self._cdata, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.home, self.get_state())


class _CudaGenerator(_GpuGenerator):
    """A GPU's generator that draws CUDA's numbers: its state is a seed and an offset."""

    def manual_seed(self, seed: int) -> Self:
        """Start again with `seed`."""
        super().manual_seed(seed)
        self._begin(super().initial_seed())
        return self

    def seed(self) -> int:
        """Start again with a random seed, and return it."""
        seed: int = super().seed()
        self._begin(seed)
        return seed

    def initial_seed(self) -> int:
        """Return the seed."""
        return self.stream.seed

    def get_offset(self) -> int:
        """Return how many of each thread's numbers were used up."""
        return self.stream.offset

    def set_offset(self, offset: int) -> Self:
        """Go to the place where `offset` of each thread's numbers are used up.

        Raises:
            RuntimeError: `offset` is not a multiple of 4, CUDA's numbers in one call.

        """
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self.stream.offset = int(offset)
        return self

    def get_state(self) -> torch.Tensor:
        """Return the seed and the offset, in 16 bytes."""
        raw = self.stream.seed.to_bytes(8, "little") + self.stream.offset.to_bytes(8, "little", signed=True)
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).clone()

    def set_state(self, state: torch.Tensor) -> Self:
        """Take over a seed and an offset; a state of old versions has a seed alone.

        Raises:
            TypeError: `state` is not a tensor of bytes on the CPU.
            RuntimeError: it is not one of CUDA's states.

        """
        is_tensor = isinstance(state, torch.Tensor)
        if not is_tensor or state.dtype is not torch.uint8 or state.device.type != "cpu":
            raise TypeError("RNG state must be a torch.ByteTensor")
        raw = bytes(state.flatten().tolist())
        if len(raw) not in (8, 16):
            raise RuntimeError("RNG state is wrong size")
        self._begin(int.from_bytes(raw[:8], "little"))
        return self.set_offset(int.from_bytes(raw[8:], "little", signed=True))

    def _begin(self, seed: int) -> None:
        self.stream.seed, self.stream.offset = seed, 0


def on_gpu(device: torch.device, *, draws_as_cpu: bool) -> "_GpuGenerator":
    """Make the generator of one GPU; `draws_as_cpu` says that it draws the CPU's numbers."""
    return _on(_GpuGenerator if draws_as_cpu else _CudaGenerator, device)


def _on(kind: type[_GpuGenerator], device: torch.device) -> "_GpuGenerator":
    generator = kind()
    generator.home = device
    generator.stream = Stream(_Generator.initial_seed(generator))
    _homes[generator._cdata] = (device, generator.stream)
    return generator


def kind_of_device(generator: Any) -> str:
    """Return the type of device that `generator` draws for."""
    home = _homes.get(generator._cdata)
    return str((home[0] if home else generator.device).type)


def stream_of(generator: Any) -> Stream:
    """Return the place of a GPU's generator in its numbers."""
    return _homes[generator._cdata][1]


def _rebuild(device: torch.device, state: torch.Tensor) -> torch.Generator:
    generator: torch.Generator = torch.Generator(device=device)
    generator.set_state(state)
    return generator


def _make(device: Any = "cpu") -> torch.Generator:
    wanted = torch.device(as_device("cpu" if device is None else device))  # type: ignore[call-overload]
    index = gpu_index(wanted)
    if index is None:
        return _Generator(wanted)  # type: ignore[no-any-return]
    return on_gpu(torch.device("cuda", index), draws_as_cpu=the_session().draws_as_cpu)


replace(torch, "C++ has generators for the CPU only", Generator=name_for(_Generator, _make))
