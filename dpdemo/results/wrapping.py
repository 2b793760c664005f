"""How DistributedDataParallel or `fully_shard` wraps a model: the settings of `memory` for ranks."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from dpdemo.config.targets import is_target
from dpdemo.errors import UsageError
from dpdemo.wording import counted, show

Kept = Literal["root", "last", "all"]
Half = Literal["bf16", "fp16"]
Reduced = Literal["bf16", "fp16", "fp32"]

NAMES = {"dp": "DataParallel", "ddp": "DistributedDataParallel", "fsdp2": "fully_shard"}
"""PyTorch's name for each strategy."""
SHORT = {"dp": "DP", "ddp": "DDP", "fsdp2": "FSDP2"}
_OF = {
    "keep_unsharded": ("fsdp2",), "mixed": ("fsdp2",), "reduce_dtype": ("fsdp2",), "offload": ("fsdp2",),
    "bucket_mb": ("ddp",), "bucket_view": ("ddp",),
}  # fmt: skip
"""The strategies that read a setting; the others read all."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The settings of a wrapper; each has PyTorch's own default.

    `blocks` are the classes that `fully_shard` wraps one by one and that are checkpointed; without any, those
    that the model repeats. `keep_unsharded` says which stay whole between forward and backward: the root as
    PyTorch has it, the last block too, or all. `mixed` is the dtype that is computed in, `reduce_dtype` that
    of the reduction. `checkpoint` is "" (none), "full", a number (each so many blocks) or `pkg.mod:function`,
    which returns the contexts of a selective checkpoint (`context_fn`). `lora` is the rank of adapters.

    Raises:
        UsageError: for a value that is none of these.

    """

    blocks: tuple[str, ...] = ()
    keep_unsharded: Kept = "root"
    mixed: Half | None = None
    reduce_dtype: Reduced | None = None
    offload: bool = False
    checkpoint: str = ""
    lora: int | None = None
    lora_targets: tuple[str, ...] = ()
    bucket_mb: float | None = None
    bucket_view: bool = False

    def __post_init__(self) -> None:
        self._expect_one_of("keep_unsharded", get_args(Kept))
        for key, known in (("mixed", get_args(Half)), ("reduce_dtype", get_args(Reduced))):
            if getattr(self, key) is not None:
                self._expect_one_of(key, known)
        self._expect_checkpoint()
        for key in ("lora", "bucket_mb"):
            value = getattr(self, key)
            if value is not None and value <= 0:
                raise UsageError(f"expected a number above 0, got {show(value)}", key=key)
        if self.lora_targets and self.lora is None:
            hint = "add the rank of the adapters: {lora=8}"
            raise UsageError("expected `lora` beside it, got none", key="lora_targets", hint=hint)

    def _expect_one_of(self, key: str, known: tuple[str, ...]) -> None:
        if getattr(self, key) not in known:
            raise UsageError(f"expected one of {', '.join(known)}, got {show(getattr(self, key))}", key=key)

    def _expect_checkpoint(self) -> None:
        said = self.checkpoint
        is_number = said.isdecimal() and int(said) > 0
        if said in {"", "full"} or is_number or (":" in said and is_target(said)):
            return
        raise UsageError(
            f"expected full, a number of blocks, or `pkg.mod:function`, got {show(said)}",
            key="checkpoint",
            hint="full checkpoints each block, 2 every second one; a function returns the two contexts that "
            "torch.utils.checkpoint takes as `context_fn`",
        )

    def expect_effect(self, strategies: tuple[str, ...]) -> None:
        """Check that each setting has an effect under at least one strategy.

        Raises:
            UsageError: for the first that has none.

        """
        for name, readers in _OF.items():
            if getattr(self, name) != _DEFAULTS[name] and not set(readers) & set(strategies):
                got = ", ".join(strategies)
                hint = f"add {{strategy={readers[0]}}}, or leave it out"
                raise UsageError(f"expected the strategy {readers[0]}, got {got}", key=name, hint=hint)
        if self.blocks and "fsdp2" not in strategies and not self.checkpoint:
            raise UsageError(
                f"expected the strategy fsdp2 or checkpointed blocks, got {', '.join(strategies)}",
                key="blocks",
                hint="blocks are sharded by {strategy=fsdp2}, or checkpointed by {checkpoint=full}",
            )

    def of(self, strategy: str) -> "Wrapping":
        """Return the settings that a strategy reads, the others as PyTorch has them."""
        left_out = [name for name, readers in _OF.items() if strategy not in readers]
        if strategy != "fsdp2" and not self.checkpoint:
            left_out.append("blocks")
        defaults: dict[str, Any] = {name: _DEFAULTS[name] for name in left_out}
        return replace(self, **defaults)

    def words(self, strategy: str) -> list[str]:
        """Describe the settings that a strategy reads, as far as they are not PyTorch's defaults."""
        found = []
        if strategy == "fsdp2":
            found += [_KEPT[self.keep_unsharded]] if self.keep_unsharded != "root" else []
            if self.mixed:
                reduced = f", reduced in {self.reduce_dtype}" if self.reduce_dtype else ""
                found.append(f"computed in {self.mixed}{reduced}")
            elif self.reduce_dtype:
                found.append(f"gradients reduced in {self.reduce_dtype}")
            found += ["parameters and optimizer on the host"] if self.offload else []
        if strategy == "ddp":
            found += [f"buckets of {self.bucket_mb:g} MiB"] if self.bucket_mb else []
            found += ["gradients as views of buckets"] if self.bucket_view else []
        if self.checkpoint:
            found.append(_checkpointed(self.checkpoint))
        if self.lora:
            found.append(f"LoRA adapters of rank {self.lora}")
        return found


_DEFAULTS = {field.name: field.default for field in fields(Wrapping)}
_KEPT = {"last": "the last block kept whole after forward", "all": "blocks kept whole after forward"}


def _checkpointed(said: str) -> str:
    if said == "full":
        return "each block checkpointed"
    return (
        f"one of {counted(int(said), 'block')} checkpointed" if said.isdecimal() else f"checkpoints of {said}"
    )
