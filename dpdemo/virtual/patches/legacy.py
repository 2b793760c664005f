"""`torch.cuda.FloatTensor` and its like: old names that make tensors on the current GPU, and know them."""

from typing import Any

import torch

from dpdemo.virtual.applying import replace, stands_in
from dpdemo.virtual.labels import gpu_of
from dpdemo.virtual.patches.names import Name, name_for
from dpdemo.virtual.state import the_session

_set_default_tensor_type: Any = torch.set_default_tensor_type
_new_tensor: Any = torch.Tensor.__new__
_SETTING = "set_default_tensor_type"

DTYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}

_OF_PYTORCH = {name: getattr(torch, name) for name in DTYPES}


class _LegacyType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        """Make a tensor from data, or an uninitialised one of a given size."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device="cuda")
        return torch.empty(*(args or (0,)), dtype=cls.dtype, device="cuda")


class _HostType(Name):
    """`torch.FloatTensor` and its like: C++ would take tensors on a GPU for theirs."""

    def __instancecheck__(cls, instance: Any) -> bool:  # noqa: N805 - a metaclass
        return super().__instancecheck__(instance) and gpu_of(instance) is None


replace(
    torch.cuda,
    "old names, not available in CPU builds",
    **{name: _LegacyType(name, (), {"__module__": "torch.cuda", "dtype": DTYPES[name]}) for name in DTYPES},
)
replace(
    torch,
    "C++ takes tensors on a GPU for these",
    **{name: name_for(kind, kind, _HostType) for name, kind in _OF_PYTORCH.items()},
)


@stands_in(torch, why="sets the default device too")
def set_default_tensor_type(kind: Any) -> None:
    """Set the default type; one of CUDA's makes tensors on the current GPU."""
    settings = the_session().settings
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{getattr(kind, '__name__', kind)}"
    module, _, last = name.rpartition(".")
    if module != "torch.cuda":
        _forget_default()
        _set_default_tensor_type(_OF_PYTORCH.get(last, kind) if module == "torch" else kind)
        return
    _set_default_tensor_type(_OF_PYTORCH[last])
    if not settings.get(_SETTING):
        the_session().entered.callback(_forget_default)
    settings[_SETTING] = last
    torch.Tensor.__new__ = staticmethod(_make_tensor)  # type: ignore[method-assign]
    torch.set_default_device("cuda")


def apply_default_type() -> None:
    """Apply the default type in a new thread: threads share it, unlike a default device."""
    if the_session().settings.get(_SETTING):
        torch.set_default_device("cuda")


def _make_tensor(*given: Any, **kwargs: Any) -> Any:
    """Make `torch.Tensor(...)`, a tensor of the default type from numbers or sizes.

    torch._dynamo, where it is imported meanwhile, accepts no other signature than this one.
    """
    cls, *args = given
    holders = (torch.Tensor, torch.UntypedStorage, torch.TypedStorage)
    if cls is not torch.Tensor or kwargs or any(isinstance(arg, holders) for arg in args):
        return _new_tensor(cls, *args, **kwargs)
    return getattr(torch.cuda, the_session().settings[_SETTING])(*args)


def _forget_default() -> None:
    """Leave no default behind that is not there."""
    if the_session().settings.pop(_SETTING, None):
        del torch.Tensor.__new__
        torch.set_default_device(None)
