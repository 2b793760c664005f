"""Read this process's rank from the environment that a launcher such as torchrun sets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.config.numbers import whole_number
from dpdemo.errors import UsageError
from dpdemo.wording import show


@dataclass(frozen=True, slots=True)
class World:
    """The place of this process among the ranks, in torchrun's terms; `node` is its GROUP_RANK."""

    rank: int
    size: int
    local_rank: int
    ranks_per_node: int
    node: int

    @property
    def num_nodes(self) -> int:
        """Number of machines."""
        return self.size // self.ranks_per_node


def launched_world(environment: Mapping[str, str] = os.environ) -> World | None:
    """Read which rank this process is; None when no launcher started it.

    A lone RANK or WORLD_SIZE is a leftover of another program and says nothing. With both of them, this is a
    rank, and all else that PyTorch's `env://` rendezvous needs has to be there and in range
    (`torch/distributed/rendezvous.py`).

    Raises:
        UsageError: if one of the launcher's variables is missing or out of range.

    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    size = _number(environment, "WORLD_SIZE", least=1)
    rank = _number(environment, "RANK", below=size)
    per_node = _number(environment, "LOCAL_WORLD_SIZE", least=1, default=size)
    if size % per_node:
        raise UsageError(
            f"expected as many ranks on every node, got {size} ranks with {per_node} on this one - "
            "at environment variables WORLD_SIZE and LOCAL_WORLD_SIZE",
            hint="give torchrun the same --nproc-per-node on every machine",
        )
    local_rank = _number(environment, "LOCAL_RANK", below=per_node, default=rank % per_node)
    node = _number(environment, "GROUP_RANK", below=size // per_node, default=rank // per_node)
    if not environment.get("MASTER_ADDR"):
        raise _bad_variable("MASTER_ADDR", "the address of the machine with rank 0", None)
    _number(environment, "MASTER_PORT", least=1, below=2**16)
    return World(rank, size, local_rank, per_node, node)


def speaks(config: Config) -> bool:
    """Return whether this process prints the result of a run: all but the ranks above 0 of a launcher do."""
    world = launched_world() if config.strategy == "ddp" else None
    return world is None or world.rank == 0


def in_world(config: Config, world: World, num_visible_gpus: int) -> Config:
    """Fill in what the launcher decided: the nodes, and the ranks on each.

    Raises:
        UsageError: if the config asks for other numbers than the launcher started, or for GPUs that a rank
            cannot have.

    """
    if config.nodes not in {1, world.num_nodes}:
        raise _other_number("nodes", config.nodes, world.num_nodes, "--nnodes")
    values = config.values() | {"nodes": world.num_nodes}
    asked = config.processes if config.gpus is None else len(config.ordinals or range(num_visible_gpus))
    if asked not in {None, world.ranks_per_node}:
        key = "processes" if config.gpus is None else "gpus"
        raise _other_number(key, asked, world.ranks_per_node, "--nproc-per-node")
    if asked is None and num_visible_gpus == 0:
        values["processes"] = world.ranks_per_node
    elif asked is None:
        values["gpus"] = world.ranks_per_node
    elif config.gpus == "all":
        values["gpus"] = num_visible_gpus
    return make_config(values)


def _other_number(key: str, asked: int | None, started: int, flag: str) -> UsageError:
    return UsageError(
        f"expected {asked} {key} as asked, got {started} from the launcher",
        key=key,
        hint=f"start torchrun with {flag} {asked}, or leave `{key}` out",
    )


def _number(
    environment: Mapping[str, str],
    name: str,
    *,
    least: int = 0,
    below: int | None = None,
    default: int | None = None,
) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    most = (below or 2**31) - 1
    number = None if text is None else whole_number(text, least, most)
    if number is None:
        raise _bad_variable(name, f"a whole number from {least} to {most}", text)
    return number


def _bad_variable(name: str, expected: str, got: str | None) -> UsageError:
    return UsageError(
        f"expected {expected}, got {'none' if got is None else show(got)}",
        place=f"environment variable {name}",
        hint="torchrun sets it; unset RANK and WORLD_SIZE to run on this machine alone",
    )
