"""Which rank this process is, as a launcher such as torchrun says in the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dpdemo.config import Config, make_config
from dpdemo.errors import UsageError


@dataclass(frozen=True, slots=True)
class World:
    """The place of this process among the ranks, in torchrun's words; `node` is its GROUP_RANK."""

    rank: int
    size: int
    local_rank: int
    ranks_per_node: int
    node: int

    @property
    def num_nodes(self) -> int:
        """Machines in all."""
        return self.size // self.ranks_per_node


def launched_world(environment: Mapping[str, str] = os.environ) -> World | None:
    """Read which rank this process is; None when no launcher started it.

    Raises:
        UsageError: if the launcher's variables are not numbers, or the nodes differ in their ranks.

    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    size = _number(environment, "WORLD_SIZE")
    per_node = _number(environment, "LOCAL_WORLD_SIZE", size)
    rank = _number(environment, "RANK")
    node = _number(environment, "GROUP_RANK", rank // max(per_node, 1))
    if per_node < 1 or size % per_node:
        raise UsageError(
            f"expected as many ranks on every node, got {size} ranks with {per_node} on node {node} - "
            "at WORLD_SIZE and LOCAL_WORLD_SIZE",
            hint="give torchrun the same --nproc-per-node on every machine",
        )
    return World(rank, size, _number(environment, "LOCAL_RANK", rank % per_node), per_node, node)


def speaks() -> bool:
    """Tell whether this process may print a result: rank 0, or one that no launcher started."""
    return os.environ.get("RANK", "0") == "0"


def in_world(config: Config, world: World, num_visible_gpus: int) -> Config:
    """Fill in what the launcher decided: the nodes, and the ranks on each.

    Raises:
        UsageError: if the config asks for other numbers than the launcher started, or for GPUs that a rank
            cannot have.

    """
    if config.nodes not in {1, world.num_nodes}:
        raise _other_number("nodes", config.nodes, world.num_nodes, "--nnodes")
    values = config.model_dump(exclude_unset=True) | {"nodes": world.num_nodes}
    asked = config.processes if config.gpus is None else _num_gpus(config, num_visible_gpus)
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


def _num_gpus(config: Config, num_visible_gpus: int) -> int:
    match config.gpus:
        case int(count):
            return count
        case tuple(ordinals):
            return len(ordinals)
        case _:
            return num_visible_gpus


def _other_number(key: str, asked: int | None, started: int, flag: str) -> UsageError:
    return UsageError(
        f"expected {asked} {key} as asked, got {started} from the launcher - at key `{key}`",
        hint=f"start torchrun with {flag} {asked}, or leave `{key}` out",
    )


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal():
        raise UsageError(
            f"expected a whole number, got {str(text)[:40]!r} - at environment variable {name}",
            hint="torchrun sets it; unset RANK and WORLD_SIZE to run on this machine alone",
        )
    return int(text)
