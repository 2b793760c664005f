"""Wrapping a model as a rank does: adapters, checkpoints, then DistributedDataParallel or `fully_shard`."""

import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpdemo.errors import DpdemoError, RunError, UsageError, about
from dpdemo.memory.blocks import blocks_of, inner_first
from dpdemo.models.failure import take_apart, users_code
from dpdemo.models.user import find_object
from dpdemo.results.wrapping import NAMES, Wrapping

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_MARK = "_dpdemo_checkpointed"


def own_strategy(model: nn.Module) -> str:
    """Return the strategy by which a model wraps itself, as its function may do, or "".

    Raises:
        UsageError: if it is wrapped twice, or by a wrapper that is not known here.

    """
    found = dict.fromkeys(name for module in model.modules() for name in [_wrapper(module)] if name)
    if "FullyShardedDataParallel" in found:
        raise _refused_fsdp1()
    if len(found) > 1 or _is_nested(model):
        names = " and ".join(NAMES[name] for name in found)
        hint = "return the bare model, or wrap it once"
        raise UsageError(f"expected one wrapper, got a model inside two: {names}", key="model", hint=hint)
    return next(iter(found), "")


def _refused_fsdp1() -> UsageError:
    hint = "return the bare model, and {strategy=fsdp2} shards it by `fully_shard`"
    return UsageError(
        "expected a model, got one inside FullyShardedDataParallel (FSDP1)", key="model", hint=hint
    )


@contextmanager
def fsdp1_refused() -> Iterator[None]:
    """Name FullyShardedDataParallel in place of what it raises in a `with` block about missing numbers.

    Raises:
        UsageError: in place of that error.

    """
    try:
        yield
    except Exception as error:
        frames = traceback.walk_tb((error.__cause__ or error).__traceback__)
        if any("fully_sharded_data_parallel" in frame.f_code.co_filename for frame, _ in frames):
            raise _refused_fsdp1() from error
        raise


def _wrapper(module: nn.Module) -> str:
    if isinstance(module, nn.DataParallel):
        return "dp"
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return "ddp"
    # asked by name: importing them takes as long as importing torch
    names = {
        kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.distributed")
    }
    if "FSDPModule" in names:
        return "fsdp2"
    return "FullyShardedDataParallel" if "FullyShardedDataParallel" in names else ""


def is_one_group(model: nn.Module) -> bool:
    """Return whether `fully_shard` has a model of several parts as one group."""
    groups = sum(_wrapper(module) == "fsdp2" for module in model.modules())
    return groups == 1 and any(True for _ in model.children())


def _is_nested(model: nn.Module) -> bool:
    wrappers = [module for module in model.modules() if _wrapper(module) in {"dp", "ddp"}]
    return any(other is not each and other in set(each.modules()) for each in wrappers for other in wrappers)


def wrap(model: nn.Module, strategy: str, wrapping: Wrapping, ordinal: int) -> nn.Module:
    """Wrap a model that is on its GPU.

    Raises:
        UsageError: if the model has no such blocks.
        RunError: if PyTorch's wrapper refuses the model.

    """
    make = _in_ddp if strategy == "ddp" else _sharded
    try:
        with users_code():
            return make(model, wrapping, ordinal)
    except DpdemoError:
        raise
    except Exception as error:
        said = f"expected a model that {NAMES[strategy]} takes, got {take_apart(error)}"
        raise RunError(said) from error


def _in_ddp(model: nn.Module, wrapping: Wrapping, ordinal: int) -> nn.Module:
    settings: dict[str, Any] = {"gradient_as_bucket_view": wrapping.bucket_view}
    if wrapping.bucket_mb is not None:
        settings["bucket_cap_mb"] = wrapping.bucket_mb
    return nn.parallel.DistributedDataParallel(model, device_ids=[ordinal], **settings)


def _sharded(model: nn.Module, wrapping: Wrapping, _: int) -> nn.Module:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    policy: dict[str, Any] = {}
    if wrapping.mixed or wrapping.reduce_dtype:
        policy["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=_DTYPES.get(wrapping.mixed or ""),
            reduce_dtype=_DTYPES.get(wrapping.reduce_dtype or ""),
        )
    if wrapping.offload:
        policy["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    blocks = blocks_of(model, wrapping.blocks)
    kept = {"root": [], "last": blocks[-1:], "all": blocks}[wrapping.keep_unsharded]
    for block in inner_first(blocks):
        fully_shard(block, reshard_after_forward=not any(block is each for each in kept), **policy)
    fully_shard(model, **policy)
    return model


def with_adapters(model: nn.Module, wrapping: Wrapping) -> nn.Module:
    """Freeze a model and give it the LoRA adapters that are asked for.

    Raises:
        UsageError: if peft is not installed, or knows no layers of the model to adapt.

    """
    if wrapping.lora is None:
        return model
    try:
        import peft
    except ImportError:
        raise UsageError(
            "expected peft to be installed for adapters, got none", key="lora", hint="pip install peft"
        ) from None
    targets: Any = list(wrapping.lora_targets) or None
    is_known = getattr(getattr(model, "config", None), "model_type", None)
    config = peft.LoraConfig(r=wrapping.lora, target_modules=targets if targets or is_known else "all-linear")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapted: nn.Module = peft.get_peft_model(model, config)
    except ValueError as error:
        hint = "name the layers: {lora_targets=q_proj,v_proj}"
        raise UsageError(
            f"expected layers that peft can adapt, got {error}", key="lora", hint=hint
        ) from error
    return adapted


@contextmanager
def checkpointed(model: nn.Module, wrapping: Wrapping) -> Iterator[None]:
    """Checkpoint a model's blocks as `wrapping` asks for, for the length of a `with` block.

    Raises:
        UsageError: if the model has no blocks, or the user's function cannot be imported.

    """
    if not wrapping.checkpoint:
        yield
        return
    blocks = blocks_of(model, wrapping.blocks)
    if not blocks:
        hint = "name the class of its blocks: {blocks=Block}"
        raise UsageError("expected a model that repeats a block, got none", key="checkpoint", hint=hint)
    step = int(wrapping.checkpoint) if wrapping.checkpoint.isdecimal() else 1
    contexts: Callable[[], Any] | None = None
    if ":" in wrapping.checkpoint:
        with about("checkpoint"):
            contexts = find_object(wrapping.checkpoint)
    chosen = blocks[step - 1 :: step]
    for block in chosen:
        vars(block)[_MARK] = True
    with checkpointing([*dict.fromkeys(type(block) for block in chosen)], contexts, only_marked=True):
        yield


@contextmanager
def checkpointing(
    kinds: Sequence[type[nn.Module]],
    contexts: Callable[[], Any] | None = None,
    *,
    only_marked: bool = False,
) -> Iterator[None]:
    """Recompute the activations of each block of some classes in the backward pass, in replicas too."""
    changed = [(kind, vars(kind).get("forward"), kind.forward) for kind in kinds]
    for kind, _, forward in changed:
        kind.forward = _recomputing(forward, contexts, only_marked=only_marked)
    try:
        yield
    finally:
        for kind, own, _ in changed:
            if own is None:
                del kind.forward
            else:
                kind.forward = own


def _recomputing(forward: Any, contexts: Callable[[], Any] | None, *, only_marked: bool) -> Any:
    extra: dict[str, Any] = {} if contexts is None else {"context_fn": contexts}

    def checkpointed_forward(self: nn.Module, *args: object, **kwargs: Any) -> object:
        if not torch.is_grad_enabled() or (only_marked and _MARK not in vars(self)):
            return forward(self, *args, **kwargs)
        run = partial(forward, self)
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **extra, **kwargs)

    return checkpointed_forward
