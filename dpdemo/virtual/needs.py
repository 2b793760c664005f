"""Every private name of PyTorch that the emulation calls, and what for: a new release fails here, by name.

What is *replaced* stands in `patches/`; this is what must be there for it to work. Both are read before
anything else of the emulation is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import VirtualGpuError

if TYPE_CHECKING:
    from collections.abc import Callable

TESTED = "2.11 to 2.15"
"""The releases that the suite has passed on."""

_TENSORS = "what C++ knows of a tensor, below the names that are replaced"
_DISPATCH = "whether and how operators of this thread are seen"
_KERNELS = "which kernels an operator has"
_TRANSFORMS = "tensors inside functorch's transforms"
_AUTOCAST = "casting as CUDA does"
_TRACERS = "tracers that run operators without numbers"

NEEDED: dict[str, str] = {
    "torch._subclasses.fake_tensor.FakeTensorMode": _TRACERS,
    "torch.Tensor._make_wrapper_subclass": _TRACERS,
    "torch._C.DisableTorchFunction": _TENSORS,
    "torch._C.DisableTorchFunctionSubclass": _TENSORS,
    "torch._C.DispatchKey.AutocastCPU": _AUTOCAST,
    "torch._C.DispatchKey.AutocastCUDA": _AUTOCAST,
    "torch._C.DispatchKey.CUDA": _KERNELS,
    "torch._C.DispatchKey.CompositeExplicitAutograd": _KERNELS,
    "torch._C.DispatchKey.CompositeImplicitAutograd": _KERNELS,
    "torch._C.DispatchKeySet": _AUTOCAST,
    "torch._C.Generator.initial_seed": "generators of their own for each GPU",
    "torch._C.StorageBase": "what saving and loading go through",
    "torch._C.StorageBase.copy_": "what saving and loading go through",
    "torch._C.StorageBase.device": "what saving and loading go through",
    "torch._C.TensorBase": _TENSORS,
    "torch._C.TensorBase.copy_": _TENSORS,
    "torch._C.TensorBase.device": _TENSORS,
    "torch._C.TensorBase.grad": _TENSORS,
    "torch._C.TensorBase.is_meta": _TENSORS,
    "torch._C.TensorBase.new": _TENSORS,
    "torch._C.TensorBase.numpy": _TENSORS,
    "torch._C._DisableTorchDispatch": _DISPATCH,
    "torch._C._ExcludeDispatchKeyGuard": _AUTOCAST,
    "torch._C._TorchDispatchModeKey.FAKE": _TRACERS,
    "torch._C._TorchDispatchModeKey.FUNCTIONAL": _TRACERS,
    "torch._C._autograd._top_saved_tensors_default_hooks": "tensors that autograd keeps",
    "torch._C._current_graph_task_id": "whether a backward pass runs",
    "torch._C._disabled_torch_dispatch_impl": _DISPATCH,
    "torch._C._dispatch_get_all_op_names": _KERNELS,
    "torch._C._dispatch_has_kernel": _KERNELS,
    "torch._C._dispatch_has_kernel_for_dispatch_key": _KERNELS,
    "torch._C._dispatch_tls_set_dispatch_key_included": _AUTOCAST,
    "torch._C._VariableFunctions": "functions that are quicker to call than their operators",
    "torch._C._ensureCUDADeviceGuardSet": "C++ that would ask for CUDA's guard, and abort",
    "torch._C._functorch.get_unwrapped": _TRANSFORMS,
    "torch._C._functorch.is_functorch_wrapped_tensor": _TRANSFORMS,
    "torch._C._functorch.maybe_current_level": _TRANSFORMS,
    "torch._C._functorch.peek_interpreter_stack": _TRANSFORMS,
    "torch._C._get_blas_preferred_backend": "settings of CUDA's libraries",
    "torch._C._get_dispatch_mode": _DISPATCH,
    "torch._C._get_dispatch_stack_at": _DISPATCH,
    "torch._C._get_linalg_preferred_backend": "settings of CUDA's libraries",
    "torch._C._jit_script_compile": "where tensors are in TorchScript",
    "torch._C._len_torch_dispatch_stack": _DISPATCH,
    "torch._C._len_torch_function_stack": _DISPATCH,
    "torch._C._nn": "functions that are quicker to call than their operators",
    "torch._C._nn._parse_to": "the arguments of `Tensor.to`",
    "torch._C._nn.flatten_dense_tensors": "DataParallel's copies between GPUs",
    "torch._C._nn.scaled_dot_product_attention": "attention as one kernel",
    "torch._C._nn.unflatten_dense_tensors": "DataParallel's copies between GPUs",
    "torch._check_tensor_all_with": "checks that need no numbers",
    "torch._VF": "recurrent layers as one kernel",
    "torch.jit._recursive.create_script_module_impl": "where tensors are in TorchScript",
    "torch._fused_sdp_choice": "attention as one kernel",
    "torch._library.custom_ops.OPDEFS": "operators that a program defines",
    "torch.jit._serialization": "where tensors are in TorchScript",
    "torch.jit._state": "where tensors are in TorchScript",
    "torch.jit._state._python_cu": "where tensors are in TorchScript",
    "torch.jit._state._python_cu.get_functions": "where tensors are in TorchScript",
    "torch.library.Library._destroy": "operators that a program defines",
    "torch.library._impls": "operators that a program defines",
    "torch._library.simple_registry.find_torch_dispatch_rule": "operators that a program defines",
    "torch._ops.HigherOrderOperator": "operators that take functions",
    "torch._ops.OpOverload.__call__.__code__": "which modes of the program saw an operator first",
    "torch._safe_softmax": "attention as one kernel",
    "torch._scaled_dot_product_attention_math": "attention as one kernel",
    "torch._utils": "DataParallel's copies between GPUs",
    "torch._prims_common.suggest_memory_format": "results of the batch norm without numbers",
    "torch.autograd._engine_run_backward": "gradients where their tensors are",
    "torch.autograd.forward_ad._current_level": "forward-mode gradients",
    "torch.autograd.profiler._supported_activities": "the profiler without CUDA's own library",
    "torch.cuda._lazy_seed_tracker": "seeds that are set before CUDA is initialised",
    "torch.cuda._lazy_init": "when CUDA is initialised",
    "torch.cuda._parse_visible_devices": "which GPUs a program hides from itself",
    "torch.cuda._transform_uuid_to_ordinals": "which GPUs a program hides from itself",
    "torch.cuda._utils._get_device_index": "which GPU a device means",
    "torch.jit._builtins._get_builtin_table": "TorchScript, which looks functions up by identity",
    "torch.nn.Module._apply": "moving a module with its gradients",
    "torch.utils._device.DeviceContext": "`with torch.device(...)`",
    "torch.utils._device._device_constructors": "`with torch.device(...)`",
    "torch.utils._python_dispatch.TorchDispatchMode": _DISPATCH,
    "torch.utils._pytree.tree_map_only": "structures of tensors",
}
"""What each name is for. `torch._dynamo` is not among them: it is asked only where a program uses it."""


def find(name: str) -> Any:
    """Return what a dotted name means, importing the modules in it.

    Raises:
        AttributeError: there is nothing of that name.

    """
    found: Any = torch
    path = "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(path)
            except ImportError:
                raise AttributeError(path) from None
        found = getattr(found, part)
    return found


def check_torch(look_up: Callable[[str], Any] = find) -> None:
    """Check that this PyTorch has all that the emulation needs.

    Raises:
        VirtualGpuError: naming the release, what is missing and what for, and the releases that were tested.

    """
    missing = []
    for name, purpose in NEEDED.items():
        try:
            look_up(name)
        except AttributeError:
            missing.append(f"  {name}: {purpose}")
    if missing:
        raise VirtualGpuError(
            f"virtual GPUs need private names of PyTorch that torch {torch.__version__} does not have:\n"
            + "\n".join(missing)
            + f"\nThey were tested on torch {TESTED}; docs/new-torch.md says where to look."
        )
