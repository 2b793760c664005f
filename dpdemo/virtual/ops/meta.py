"""`virtual_gpus(n, storage="meta")`: storages with sizes and no numbers.

A tensor on a GPU is then one of PyTorch's meta tensors with a label on its storage; everything that the
ledger counts is the same. Tensors on the host are real, so that lengths, indices and random choices work as
usual, with two exceptions, which are meta tensors without a label: parameters, since a module that moves
keeps its parameters the same objects only if these can take over the moved data; and what was copied back
from a GPU. A new tensor of the host of more than 256 MiB has none either, so that a large model can be built.

Where numbers are wanted there are none, and that is an error: a real tensor is never made from nothing.

Many of PyTorch's kernels for meta tensors are written in Python. While they run (`sees_as_cpp`) a tensor on
a GPU must not say so: they would make their results there.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dpdemo.virtual.applying import Patch, group, of_session
from dpdemo.virtual.errors import needs_numbers
from dpdemo.virtual.labels import label_of
from dpdemo.virtual.ops.computed import (
    compute,
    effects_of,
    known_operands,
    note_computed,
    note_unknown,
    targets,
    write,
)
from dpdemo.virtual.ops.guards import answer_of_check, in_check_of_tensors, in_optimizer_step, place_of_reader
from dpdemo.virtual.ops.known import META, is_forgotten, numbers_of
from dpdemo.virtual.ops.memo import shapes_of, target_of
from dpdemo.virtual.ops.random import is_random, run_random
from dpdemo.virtual.state import Session, the_session

_LARGE_BYTES = 256 * 2**20
_Tensor = torch.Tensor
_is_meta: Any = torch._C.TensorBase.is_meta
_new_parameter: Any = nn.Parameter.__new__
_empty_like: Any = torch.ops.aten.empty_like.default
_Generator: Any = torch._C.Generator
_swap: Any = torch.utils.swap_tensors


def run(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None) -> Any:
    """Run `func` for its shapes, and for its numbers where all operands are known.

    Raises:
        UnsupportedOpError: it needs numbers that are not there, or PyTorch cannot tell its shapes.

    """
    is_real = index is None and kwargs.get("device") != META
    if is_real and not any(map(_has_meta, (*args, *kwargs.values()))):
        if not _is_large(func, args, kwargs):
            return run_random(session, func, args, kwargs, None) if is_random(func) else func(*args, **kwargs)
        kwargs = {**kwargs, "device": META}
    effects = effects_of(func)
    if effects.is_view:
        return _for_shapes(session, func, args, kwargs, index)
    if effects.written:
        return _run_writing(session, func, args, kwargs, index)
    record = effects.special
    known = None if record.is_unwritten else known_operands(args, kwargs)
    if known is not None and effects.needs_numbers:
        return compute(session, func, known, index)
    if known is None and record.partly_known is not None:
        func, args = record.partly_known(func, args)
    result = _for_shapes(session, func, args, kwargs, index)
    if known is None or record.fills is not None:
        note_unknown(func, args, result)
    else:
        note_computed(session, (func, args), known, index, result)
    return result


def _run_writing(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    """Run an operator that writes; a real tensor of the host that is written with what is not known stays."""
    real = [target for target in targets(func, args, kwargs) if not _is_meta.__get__(target)]
    written = write(session, func, args, kwargs, index)
    if written and real:
        return written[0]
    if not func._schema.returns:
        return None  # there is no shape to tell, and not every such operator has a kernel that would
    result = _for_shapes(session, func, args, kwargs, index)
    if not real or isinstance(result, tuple):  # a layer's results, beside statistics that it keeps
        return result
    if real[0].shape != result.shape:  # `out=` takes the shape of what is written
        with torch._C._DisableTorchDispatch():
            real[0].resize_(result.shape)
    return real[0]


def _for_shapes(
    session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int | None
) -> Any:
    stand_ins = [_without_numbers(arg) for arg in args]
    named = {name: _without_numbers(value) for name, value in kwargs.items()} if kwargs else kwargs
    if index is not None and named.get("device") is not None:
        named["device"] = META
    current = session.current
    before, current.sees_as_cpp = current.sees_as_cpp, True
    try:
        effects = effects_of(func)
        run = effects.special.shape or func
        if effects.makes_new:
            return shapes_of(func, run, stand_ins, named)
        if effects.gives_target:
            return target_of(func, run, stand_ins, named)
        return run(*stand_ins, **named)
    except NotImplementedError as error:
        raise needs_numbers(str(func)) from error
    except RuntimeError as error:
        if "meta" in str(error).lower():
            raise needs_numbers(str(func)) from error
        raise
    finally:
        current.sees_as_cpp = before


def _is_large(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether `func` would make a new tensor of the host that is too large to be made."""
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
    matrix = torch.empty(1, 1, device=META)
    torch.addmm(matrix, matrix, matrix)


def is_without_numbers() -> bool:
    """Return whether a meta tensor is one that stands for a tensor elsewhere."""
    session = the_session()
    return session.is_meta and not session.current.sees_as_cpp


def _has_meta(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_meta, value))
    return isinstance(value, _Tensor) and (bool(_is_meta.__get__(value)) or is_forgotten(value))


def _without_numbers(value: Any) -> Any:
    if isinstance(value, _Tensor):
        return value if _is_meta.__get__(value) else _empty_like(value, device=META)
    if isinstance(value, (list, tuple)):
        return [_without_numbers(item) for item in value]
    # asked in this way since its class has an `isinstance` in Python, twenty times as slow
    return None if _Generator in type(value).__mro__ else value


def _make_parameter(cls: type, data: Any = None, requires_grad: bool = True) -> Any:
    """Make a parameter, which has no numbers."""
    if isinstance(data, _Tensor) and data.layout is torch.strided:
        data = _without_numbers(data.detach())
    return _new_parameter(cls, data, requires_grad)


def take_numbers(module: nn.Module) -> None:
    """Take the numbers from parameters that were made before the block, before they move."""
    for parameter in module._parameters.values():
        if parameter is not None and not _is_meta.__get__(parameter):
            _swap(parameter, nn.Parameter(parameter.detach(), parameter.requires_grad))


def _refusing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a method that reads numbers into Python, if they are known."""

    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not ((self.is_meta and is_without_numbers()) or is_forgotten(self)):
            return original(self, *args, **kwargs)
        if numbers_of(self) is None:
            answer = _answer(name)
            if answer is not None:
                the_session().made_up.setdefault(place_of_reader(), answer)
                return answer
        return original(known(self, f"Tensor.{name}"), *args, **kwargs)

    return method


def _answer(reader: str) -> bool | float | None:
    """Return a number that will do for a reader who only checks or scales, or None (see `guards.py`)."""
    if reader == "__bool__":
        return answer_of_check()
    if reader == "item" and in_check_of_tensors():
        return True
    return 1.0 if reader in {"item", "__float__"} and in_optimizer_step() else None


def known(tensor: torch.Tensor, reader: str) -> torch.Tensor:
    """Return the numbers of a tensor, which are copied to the host now.

    Raises:
        UnsupportedOpError: they are not known.

    """
    numbers = numbers_of(tensor)
    if numbers is None:
        raise needs_numbers(reader)
    session = the_session()
    label = label_of(tensor, session.key)
    if label is not None:
        session.ledger.transfer(label.index, None, numbers.nbytes)
    return numbers


_format: Any = torch.Tensor.__format__


def _format_(self: torch.Tensor, spec: str) -> Any:
    """Format known numbers; without a format a tensor is printed as usual, without numbers."""
    if spec and ((self.is_meta and is_without_numbers()) or is_forgotten(self)):
        return _format(known(self, "Tensor.__format__"), spec)
    return _format(self, spec)


_READING = ("__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__", "item", "tolist")


@of_session
def _readers(session: Session) -> list[Patch]:
    """Refuse to read numbers where the session's tensors have none."""
    if not session.is_meta:
        return []
    reading = {
        name: _refusing(name, getattr(torch._C.TensorBase, name, None) or getattr(_Tensor, name))
        for name in _READING
    }
    return [
        *group(_Tensor, "there are no numbers to read", **reading, __format__=_format_),
        *group(nn.Parameter, "a parameter has no numbers on the host either", __new__=_make_parameter),
    ]
