"""Gradients are where their tensors are.

Nearly all of them are results of operators, and labelled as such. But some gradients C++ makes from nothing
(zeros for an output that took no part in the loss, or for an input that has no influence), and it makes them
on the CPU. They are labelled where they come to light:

- as the arguments of a Python `backward`: `apply` notes where a function's outputs are (`Broadcast` has them
  on several GPUs), and `backward` labels accordingly. It also makes that GPU the current one,
  as C++ does;
- as `.grad`, and as the results of `torch.autograd.grad`;
- as tangents of forward mode, when they are unpacked.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from dpdemo.virtual.applying import Attribute, replace, stands_in
from dpdemo.virtual.kinds import around_backward
from dpdemo.virtual.labels import as_cpp, gpu_of, has_operators_of_its_own, notes_of, stamp
from dpdemo.virtual.ops import accumulating
from dpdemo.virtual.state import the_session

_apply: Any = torch.autograd.Function.__dict__["apply"]  # a classmethod; of C++ itself since 2.15
_backward: Any = BackwardCFunction.__dict__["apply"]
_backward_boxed: Any = BackwardCFunction.__dict__.get("apply_boxed")
_HOMES = "_virtual_gpu_homes"
_SOURCES = "_virtual_gpu_sources"
_ANYWHERE = -1  # the place of a gradient whose argument is not a tensor


_GIVEN = "set as a gradient on the CPU"  # by the program: FSDP moves its parameter afterwards
_grad: Any = torch._C.TensorBase.grad
_unpack_dual: Any = torch._VF._unpack_dual
_run_engine: Any = torch.autograd._engine_run_backward  # type: ignore[attr-defined]


def _settle(gradient: torch.Tensor | None, tensor: torch.Tensor) -> None:
    """Label a gradient that has no label as `tensor` is labelled."""
    if gradient is None or gpu_of(gradient) is not None:
        return
    home = gpu_of(tensor)
    if home is not None and _GIVEN not in notes_of(gradient):
        stamp(gradient, the_session(), home)


def _get_grad(self: torch.Tensor) -> torch.Tensor | None:
    gradient: torch.Tensor | None = _grad.__get__(self)
    if gradient is None:
        return None
    session = the_session()
    try:
        if session.key in gradient.untyped_storage().__dict__:
            return gradient
    except (NotImplementedError, RuntimeError, ValueError):
        pass  # it has no storage of its own
    if not session.current.is_moving:
        _settle(gradient, self)
    return gradient


@stands_in(torch._VF, "_unpack_dual", why="C++ makes tangents of nothing on the CPU")
@stands_in(torch._functorch.predispatch, "_unpack_dual_impl", why="C++ makes tangents of nothing on the CPU")
def _unpack_dual_(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Unpack a dual tensor; a tangent that C++ made of zeros is where its tensor is."""
    primal, tangent = _unpack_dual(*args, **kwargs)
    _settle(tangent, primal)
    return primal, tangent


def _set_grad(self: torch.Tensor, gradient: torch.Tensor | None) -> None:
    # torch/csrc/autograd/python_variable.cpp, THPVariable_set_grad
    if isinstance(gradient, torch.Tensor) and gradient.device != self.device:
        raise RuntimeError(
            f"attempting to assign a gradient with device type '{gradient.device.type}' to a tensor with "
            f"device type '{self.device.type}'. Please ensure that the gradient and the tensor are on the "
            "same device"
            if gradient.device.type != self.device.type
            else "assigned grad has data located on a different device"
        )
    _grad.__set__(self, gradient)
    if gradient is not None and gpu_of(gradient) is None:
        notes_of(gradient)[_GIVEN] = True


replace(
    torch.Tensor,
    "C++ makes gradients of nothing on the CPU; they are labelled when they are read",
    grad=Attribute(_get_grad, _set_grad, _grad.__delete__),
)


@stands_in(torch.autograd, "_engine_run_backward", why="C++ makes gradients of nothing on the CPU")
def _run_engine_(outputs: Any, *args: Any, **kwargs: Any) -> Any:
    for place, (output, gradient) in enumerate(zip(outputs, args[0], strict=False)):
        if isinstance(output, torch.Tensor) and isinstance(gradient, torch.Tensor):
            _check_gradient("", place, gpu_of(output), gradient)
    accumulating.measure(_run_engine)
    with the_session().current.having("keeps_graph", bool(args[1])):
        results = around_backward(lambda: _run_engine(outputs, *args, **kwargs))
    for gradient, tensor in zip(results or (), args[3] or (), strict=False):
        if isinstance(tensor, torch.Tensor):
            _settle(gradient, tensor)
    return results


@stands_in(torch.autograd.Function, "apply", why="it notes where the outputs are", form=classmethod)
def _apply_(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    """Call a function, and note the GPUs of its outputs."""
    result = _apply.__get__(None, cls)(*args, **kwargs)
    _note_homes(args, result)
    return result


@as_cpp
def _note_homes(args: tuple[Any, ...], result: Any) -> None:
    outputs = result if isinstance(result, tuple) else (result,)
    sources = [gpu_of(arg) if isinstance(arg, torch.Tensor) else _ANYWHERE for arg in args]
    homes = [gpu_of(output) if isinstance(output, torch.Tensor) else None for output in outputs]
    if any(home is not None for home in homes):
        for output in outputs:
            node = output.grad_fn if isinstance(output, torch.Tensor) else None
            if isinstance(node, BackwardCFunction):
                node.__dict__.setdefault(_HOMES, homes)
                node.__dict__.setdefault(_SOURCES, sources)


@stands_in(BackwardCFunction, "apply", why="C++ makes gradients of zeros on the CPU")
def _backward_(self: Any, *gradients: Any) -> Any:
    """Call a Python `backward`, as C++ does for each."""
    return _at_home(self, gradients, lambda: _backward(self, *gradients))


if _backward_boxed is not None:

    @stands_in(BackwardCFunction, "apply_boxed", why="the same since 2.15, with gradients in a list")
    def _backward_boxed_(self: Any, gradients: list[Any]) -> Any:
        return _at_home(self, gradients, lambda: _backward_boxed(self, gradients))


def _at_home(node: Any, gradients: Sequence[Any], call: Callable[[], Any]) -> Any:
    """Label the gradients of `node` as its outputs were, and run `call` on their GPU."""
    homes = node.__dict__.get(_HOMES)
    if homes is None:
        return call()
    session = the_session()
    for gradient, home in zip(gradients, homes, strict=False):
        if home is not None and isinstance(gradient, torch.Tensor) and gpu_of(gradient) is None:
            stamp(gradient, session, home)
    with session.current.having("index", next(home for home in homes if home is not None)):
        found = call()
    _check_found(node, found)
    return found


def _check_found(node: Any, found: Any) -> None:
    """Check that a Python `backward` returned each gradient where its tensor is."""
    found = found if isinstance(found, (tuple, list)) else (found,)
    for place, (gradient, source) in enumerate(zip(found, node.__dict__[_SOURCES], strict=False)):
        if isinstance(gradient, torch.Tensor) and source != _ANYWHERE:
            _check_gradient(f"Function {type(node).__name__} returned an ", place, source, gradient)


@as_cpp
def _check_gradient(where: str, place: int, home: int | None, gradient: torch.Tensor) -> None:
    there = gpu_of(gradient)
    if there == home or not gradient.dim() or has_operators_of_its_own(type(gradient)):
        return
    session = the_session()
    wanted, found = ("cpu" if index is None else session.devices[index] for index in (home, there))
    raise RuntimeError(  # torch/csrc/autograd/engine.cpp, validate_outputs
        f"{where}invalid gradient at index {place} - expected device {wanted} but got {found}"
    )


_Groups = dict[tuple[torch.device, torch.dtype | None], tuple[list[list[Any]], list[int]]]


@stands_in(torch._C, "_group_tensors_by_device_and_dtype", why="C++ would group tensors of all GPUs together")
def _group_by_device_and_dtype(tensorlistlist: list[list[Any]], with_indices: bool = False) -> _Groups:
    """Group tensors as optimizers and gradient clipping do for foreach kernels (torch/csrc/Module.cpp)."""
    groups: _Groups = {}
    for position, tensor in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for group, column in zip(lists, tensorlistlist, strict=True):
            if column:  # an optimizer without momentum passes an empty list
                group.append(column[position])
        if with_indices:
            indices.append(position)
    return groups
