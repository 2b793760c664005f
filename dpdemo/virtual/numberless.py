"""`virtual_gpus(n, storage="meta")`: storages with sizes and no numbers.

A tensor on a GPU is then one of PyTorch's meta tensors with a label on its storage; everything that the
ledger counts is the same. Tensors on the host are real, so that lengths, indices and random choices work as
ever, with two exceptions, which are meta tensors without a label: parameters, since a module that moves keeps
its parameters the same objects only if these can take over the moved data; and what was copied back from a
GPU. A new tensor of the host of more than 256 MiB has none either, so that a large model can be built.

Where numbers are wanted there are none, and that is an error: a real tensor is never made from nothing.

Many of PyTorch's kernels for meta tensors are written in Python. While they run (`beneath`) a tensor on a GPU
must not say so: they would make their results there.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dpdemo.virtual.errors import needs_numbers
from dpdemo.virtual.random import is_random, run_random
from dpdemo.virtual.shapes import SHAPES
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpdemo.virtual.state import Session

META = torch.device("meta")
_LARGE_BYTES = 256 * 2**20
_Tensor = torch.Tensor
_is_meta: Any = torch._C.TensorBase.is_meta
_new_parameter: Any = nn.Parameter.__new__
_empty_like: Any = torch.ops.aten.empty_like.default
_Generator: Any = torch._C.Generator
_swap: Any = torch.utils.swap_tensors


def run(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None) -> Any:
    """Run `func` for its shapes; among real tensors of the host alone, for its numbers.

    Raises:
        UnsupportedOpError: it needs numbers that are not there, or PyTorch cannot tell its shapes.

    """
    if index is None and not any(map(_has_numberless, (*args, *kwargs.values()))):
        if not _is_large(func, args, kwargs):
            return run_random(session, func, args, kwargs, None) if is_random(func) else func(*args, **kwargs)
        kwargs = {**kwargs, "device": META}
    _expect_numberless_targets(func, args, kwargs)
    stand_ins = [_without_numbers(arg) for arg in args]
    named = {name: _without_numbers(value) for name, value in kwargs.items()}
    if index is not None and named.get("device") is not None:
        named["device"] = META
    try:
        with beneath(session):
            return SHAPES.get(func, func)(*stand_ins, **named)
    except NotImplementedError as error:
        raise needs_numbers(str(func)) from error
    except RuntimeError as error:
        if "meta" in str(error).lower():
            raise needs_numbers(str(func)) from error
        raise


def _is_large(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether `func` would make a new tensor of the host that is too large to be made."""
    if "device" not in kwargs or any(isinstance(arg, _Tensor) for arg in args):
        return False
    named = {name: _without_numbers(value) for name, value in kwargs.items()}
    try:
        made = func(*args, **{**named, "device": META})
    except (NotImplementedError, RuntimeError):
        return False  # the real call says what is wrong
    return isinstance(made, _Tensor) and made.nbytes > _LARGE_BYTES


def warm_up() -> None:
    """Let PyTorch load its Python kernels now: the call that loads them keeps its operands alive for long."""
    one = torch.empty(1, 1, device=META)
    torch.addmm(one, one, one)


@contextlib.contextmanager
def beneath(session: Session) -> Iterator[None]:
    """Let tensors be what they are to C++, for the length of a `with` block."""
    before, session.current.is_beneath = session.current.is_beneath, True
    try:
        yield
    finally:
        session.current.is_beneath = before


def is_without_numbers() -> bool:
    """Tell whether a meta tensor is one that stands for a tensor elsewhere."""
    session = the_session()
    return session.is_meta and not session.current.is_beneath


def _has_numberless(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_numberless, value))
    return isinstance(value, _Tensor) and bool(_is_meta.__get__(value))


def _without_numbers(value: Any) -> Any:
    if isinstance(value, _Tensor):
        return value if _is_meta.__get__(value) else _empty_like(value, device=META)
    if isinstance(value, (list, tuple)):
        return [_without_numbers(item) for item in value]
    return None if isinstance(value, _Generator) else value


def _expect_numberless_targets(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse to write what is not known into a real tensor of the host."""
    named = [(spec, arg) for spec, arg in zip(func._schema.arguments, args, strict=False)]
    named += [(spec, kwargs[spec.name]) for spec in func._schema.arguments if spec.name in kwargs]
    for spec, value in named:
        if not spec.is_write:
            continue
        for target in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(target, _Tensor) and not _is_meta.__get__(target):
                raise needs_numbers(str(func))


def new_parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
    """Stand in for `Parameter.__new__`: parameters have no numbers."""
    if isinstance(data, _Tensor) and data.layout is torch.strided:
        data = _without_numbers(data.detach())
    return _new_parameter(cls, data, requires_grad)


def take_numbers(module: nn.Module) -> None:
    """Take the numbers from parameters that were made before the block, before they move."""
    for parameter in module._parameters.values():
        if parameter is not None and not _is_meta.__get__(parameter):
            _swap(parameter, nn.Parameter(parameter.detach(), parameter.requires_grad))


def refusing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a stand-in for a method of tensors that hands numbers to Python."""

    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.is_meta and is_without_numbers():
            raise needs_numbers(f"Tensor.{name}")
        return original(self, *args, **kwargs)

    return method


_format: Any = torch.Tensor.__format__


def format_(self: torch.Tensor, spec: str) -> Any:
    """Stand in for `Tensor.__format__`: without a format a tensor is printed as ever, without numbers."""
    if spec and self.is_meta and is_without_numbers():
        raise needs_numbers("Tensor.__format__")
    return _format(self, spec)


READING = ("__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__", "item", "tolist")
