"""`torch.autocast("cpu")`: CPU tensors are cast as usual, and those on GPUs are left alone.

C++'s kernels for the dispatch key `AutocastCPU` do the casting. Each is overridden by one that asks first
where the operands are; that is done when autocast is first turned on for "cpu" in a block.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import label_of
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

    Kernel = Callable[..., Any]

_KEY = "AutocastCPU"
_KEYSET: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def spare_gpus(find: Callable[[str], Any]) -> torch.library.Library:
    """Let `torch.autocast("cpu")` cast as usual, but not on GPUs, which C++ takes for the CPU."""
    library = torch.library.Library("aten", "IMPL", _KEY)  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel of C++ is overridden, which is the point
        for name in torch._C._dispatch_get_all_op_names():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(name, _KEY):
                continue
            op = find(name.removeprefix("aten::")) if name.startswith("aten::") else None
            if op is not None:
                kernel = _on_cpu_only(op, torch.library.get_kernel(op, _KEY))
                library.impl(op, kernel, with_keyset=True, allow_override=True)  # type: ignore[no-untyped-call]
    return library


def _on_cpu_only(op: Any, original: Any) -> Kernel:
    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        flat = [item for arg in (*args, *kwargs.values()) for item in _items(arg)]
        if not any(isinstance(item, torch.Tensor) and _is_on_gpu(item) for item in flat):
            return original.call_boxed(keyset, *args, **kwargs)
        with torch._C._ExcludeDispatchKeyGuard(_KEYSET):
            return op(*args, **kwargs)

    return kernel


def _items(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else (value,)


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    return label_of(tensor, the_session().key) is not None
