"""The keys of a config. Each is one field with its default, help, kind and example; all else loops over them.

To add a key, add a field to `Config` and its line to `Keys`, for type checkers. The loader, `--set` and the
file of `dpdemo init` then know it.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, get_args

from dpdemo.config import kinds
from dpdemo.config.catalogue import MODELS
from dpdemo.config.kinds import Kind, refused, unknown_key
from dpdemo.config.numbers import INT64_MAX

__all__ = ["INT64_MAX", "KEYS", "Config", "Key"]

Gpus = int | tuple[int, ...] | Literal["all"] | None
DType = Literal["float32", "float64", "bfloat16", "float16"]


class Keys(TypedDict, total=False):
    """The keyword arguments of a function with `**overrides`: the keys of a `Config`."""

    input_size: int
    output_size: int
    batch_size: int
    data_size: int
    gpus: int | Sequence[int] | Literal["all"] | None
    model: str
    output_device: int | None
    dim: int
    shuffle: bool
    drop_last: bool
    seed: int
    dtype: DType
    strategy: Literal["dp", "ddp", "fsdp2"]
    nodes: int
    processes: int | None
    batch_size_is: Literal["per-rank", "global"] | None
    sampler_drop_last: bool
    trace_sample: int | None


class Key(NamedTuple):
    """A config key: its help, the kind of its values, its default and an example in YAML."""

    help: str
    kind: Kind
    default: Any
    example: str


def key(default: Any, text: str, kind: Kind, example: object = "") -> Any:
    """Make the field of a key; without an example the default is one."""
    return dataclasses.field(
        default=default, metadata={"key": Key(text, kind, default, str(example or default))}
    )


def flag(text: str) -> Any:
    """Make the field of a key that is true or false, and false unless it is set."""
    return key(False, text, kinds.FLAG, "true")


@dataclass(frozen=True, init=False)
class Config:
    """The model, data and GPUs of a split; the defaults are those of PyTorch's DataParallel tutorial.

    Raises:
        UsageError: for an unknown key or a value of the wrong kind.

    """

    input_size: int = key(5, "Features of one sample.", kinds.SIZE)
    output_size: int = key(2, "Features of one output.", kinds.SIZE)
    batch_size: int = key(
        30, "Samples in one batch: over all GPUs together; under `ddp`, of each rank.", kinds.SIZE
    )
    data_size: int = key(100, "Samples in one epoch.", kinds.SIZE)
    gpus: Gpus = key(
        None,
        "GPUs: a count (3), ordinals (0,2 or 3,), a range (0-3), or all. In a file, a list: [0, 2]. Under "
        "`ddp`, those of each node.",
        kinds.GPUS,
        "[0, 1, 2]",
    )
    model: str = key(
        "linear",
        f"One of {', '.join(MODELS)}, or your own: `model.py:Net`, `pkg.mod:Net`.",
        kinds.TEXT,
        "model.py:Net",
    )
    output_device: int | None = key(
        None,
        "Ordinal of the GPU that gathers the outputs; by default the first of `gpus`.",
        kinds.ORDINAL,
        "0",
    )
    dim: int = key(0, "Dimension that holds the batch.", kinds.whole(0, 1, "dimension 0 or 1"), "1")
    shuffle: bool = flag("Visit the samples in a random order.")
    drop_last: bool = flag("Leave out a last batch that is not full.")
    seed: int = key(0, "Seed of data and weights.", kinds.ROWS, "1")
    dtype: DType = key("float32", "Type of the model's numbers.", kinds.words(*get_args(DType)), "bfloat16")
    strategy: Literal["dp", "ddp", "fsdp2"] = key(
        "dp",
        "DataParallel (dp), or a process for each rank: DistributedDataParallel (ddp), fully_shard (fsdp2).",
        kinds.words("dp", "ddp", "fsdp2"),
        "ddp",
    )
    nodes: int = key(1, "Machines that the ranks of `ddp` run on.", kinds.NODES, "2")
    processes: int | None = key(
        None, "Ranks of `ddp` on each node, on the CPU; with `gpus`, one for each GPU.", kinds.COUNT, "3"
    )
    batch_size_is: Literal["per-rank", "global"] | None = key(
        None,
        "Whether the batch_size of `ddp` is each rank's, as a DataLoader's is, or that of all ranks.",
        kinds.words("per-rank", "global"),
        "global",
    )
    sampler_drop_last: bool = flag(
        "DistributedSampler's drop_last: leave out the samples that the ranks do not divide, instead of "
        "repeating some."
    )
    trace_sample: int | None = key(
        None, "Number of a sample to follow: its batch, device, row and output row.", kinds.ROWS, "17"
    )

    def __init__(self, **values: Unpack[Keys]) -> None:
        found: dict[str, Any] = {}
        for name, value in values.items():
            if name not in KEYS:
                raise unknown_key(name, KEYS)
            found[name] = _checked(name, value)
        vars(self).update({name: found.get(name, known.default) for name, known in KEYS.items()})
        vars(self)["given"] = frozenset(values)

    @property
    def given(self) -> frozenset[str]:
        """The keys that were set; the others have their defaults."""
        given: frozenset[str] = vars(self)["given"]
        return given

    def values(self) -> dict[str, Any]:
        """Return the keys that were set, with their values."""
        return {name: getattr(self, name) for name in KEYS if name in self.given}

    def to_dict(self) -> dict[str, Any]:
        """Return all keys with their values."""
        return {name: getattr(self, name) for name in KEYS}

    @property
    def ordinals(self) -> Sequence[int] | None:
        """The GPUs in replica order; None for `all`, and where none are named: only a machine can tell."""
        return range(self.gpus) if isinstance(self.gpus, int) else self.gpus if self.gpus != "all" else None

    @property
    def is_builtin(self) -> bool:
        """Whether the model is one of dpdemo's own."""
        return self.model in MODELS

    @property
    def wrapped(self) -> str:
        """The path of the submodule that is split, "" for the whole model."""
        return MODELS[self.model].wrapped if self.is_builtin else ""


KEYS: dict[str, Key] = {field.name: field.metadata["key"] for field in dataclasses.fields(Config)}
"""All keys by name."""


def _checked(name: str, value: Any) -> Any:
    known = KEYS[name]
    if value is None and known.default is None:
        return None
    frozen = tuple(value) if isinstance(value, list) else value
    if not known.kind.accepts(frozen):
        raise refused(name, frozen, known.kind, known.example)
    return frozen


def starter_config() -> str:
    """Write a YAML config of all keys with their help; only a few are not commented out."""
    from textwrap import wrap

    text = "# dpdemo run --config dpdemo.yaml\n"
    for name, known in KEYS.items():
        sign = "" if name in {"input_size", "output_size", "batch_size", "data_size", "gpus"} else "# "
        lines = [f"# {line}" for line in wrap(known.help, 90)]
        text += "\n".join(["", *lines, f"{sign}{name}: {known.example}", ""])
    return text
