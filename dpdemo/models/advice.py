"""The next step for an error that ends a program or a rank, with the program's own names."""

import re
from collections.abc import Iterator
from types import FrameType, TracebackType

from dpdemo.models.frames import is_installed, users_frames
from dpdemo.models.messages import find_known

_ATTRIBUTE = re.compile(
    r"'(DataParallel|DistributedDataParallel|FullyShardedDataParallel)' object has no attribute '(\w+)'"
)
_MIXED = "got mixed torch.Tensor and DTensor"
_HOOKED = {"forward", "__call__", "_call_impl", "_wrapped_call_impl"}


def advice(error: BaseException, *, is_of_rank: bool = False) -> list[str]:
    """Return what to do about an error; nothing for one that no table knows."""
    trace = error.__traceback__
    found = [*_attribute_of_wrapper(error, trace), *_past_fsdp(error, trace)]
    known = None if found else find_known(f"{type(error).__name__}: {error}", is_of_rank=is_of_rank)
    if known is not None:
        found.append(known.todo)
    return found


def _attribute_of_wrapper(error: BaseException, trace: TracebackType | None) -> Iterator[str]:
    """Write the expression of the line that failed with the wrapper's `module` in it."""
    missing = _ATTRIBUTE.search(str(error)) if isinstance(error, AttributeError) else None
    if missing is None:
        return
    wrapper, name = missing.groups()
    frames = users_frames(trace)
    own = [frame for frame in frames if not is_installed(frame.filename)] or frames
    before = re.search(rf"([\w.\[\]]+)\.{name}\b", (own[-1].line or "") if own else "")
    owner = before[1] if before else "model"
    yield f"{wrapper} has the model as its `module`: write `{owner}.module.{name}`"


def _past_fsdp(error: BaseException, trace: TracebackType | None) -> Iterator[str]:
    """Name the method of a module under fully_shard that was called past its hooks."""
    if _MIXED not in str(error) or "loading state_dict" in str(error):
        return
    for frame in _frames(trace):
        owner, method = frame.f_locals.get("self"), frame.f_code.co_name
        is_sharded = any(each.__name__ == "FSDPModule" for each in type(owner).__mro__)
        if is_sharded and method in _HOOKED:
            return
        if is_sharded:
            yield (
                f"`{method}` is called past FSDP's hooks, so its parameters are shards: after fully_shard, "
                f'torch.distributed.fsdp.register_fsdp_forward_method(model, "{method}")'
            )
            return


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
