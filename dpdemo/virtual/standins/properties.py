"""`torch.cuda.get_device_properties`: what a GPU says of itself, as its card (dpdemo/arithmetic/cards.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpdemo.arithmetic.cards import Card
from dpdemo.virtual.errors import UnsupportedOpError

_MIB = 2**20
_OF_SPEED = ("clock_rate", "memory_clock_rate", "memory_bus_width")
# What a block of threads can share, by compute capability (CUDA programming guide, "Compute Capabilities")
_SHARED_BYTES = {(6, 0): 64, (7, 0): 96, (7, 5): 64, (8, 0): 164, (8, 6): 100, (8, 9): 100, (12, 0): 100}
_LARGEST_SHARED = 228  # KiB, since 9.0
_RESERVED_SHARED = 1  # KiB of it are the system's


@dataclass(frozen=True, repr=False, kw_only=True)
class DeviceProperties:
    """Stands in for `torch._C._CudaDeviceProperties`."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_multi_processor: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block_optin: int
    uuid: str
    pci_bus_id: int
    pci_device_id: int = 0
    pci_domain_id: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    max_threads_per_block: int = 1024
    warp_size: int = 32
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    L2_cache_size: int
    gcnArchName: str  # noqa: N815 - PyTorch's own

    def __getattr__(self, name: str) -> Any:
        """Refuse what belongs to speed."""
        if name in _OF_SPEED:
            raise UnsupportedOpError(f"device property {name!r}: a virtual GPU has no clock and no bus")
        raise AttributeError(f"'_CudaDeviceProperties' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // _MIB}MB, "
            f"multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // _MIB}MB)"
        )


def uuid_of(index: int) -> str:
    """Return what tells GPU `index` from all others, whatever number a program gives it."""
    return f"00000000-0000-0000-0000-{index:012d}"


def properties_of(card: Card, index: int, total_bytes: int) -> DeviceProperties:
    """Return the properties of GPU `index`, which is a `card` with `total_bytes` of memory."""
    major, minor = card.capability
    shared = _SHARED_BYTES.get(card.capability, _LARGEST_SHARED)
    return DeviceProperties(
        name=card.reported_name,
        major=major,
        minor=minor,
        total_memory=total_bytes,
        multi_processor_count=card.num_multiprocessors,
        max_threads_per_multi_processor=card.threads_per_multiprocessor,
        shared_memory_per_multiprocessor=shared * 1024,
        shared_memory_per_block_optin=(shared - _RESERVED_SHARED) * 1024,
        uuid=uuid_of(index),
        pci_bus_id=index,
        L2_cache_size=card.cache_bytes,
        gcnArchName=card.reported_name,
    )
