"""Read this process's rank from the environment that a launcher such as torchrun sets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.config.numbers import whole_number
from dpdemo.errors import UsageError
from dpdemo.results.devices import Devices
from dpdemo.wording import show

_VARIABLES = (
    "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
)  # fmt: skip
_TOO_LARGE = 2**31


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

    A lone RANK or WORLD_SIZE is a leftover of another program. With both of them, this is a rank, and all
    else that PyTorch's `env://` rendezvous needs has to be there (`torch/distributed/rendezvous.py`).

    Raises:
        UsageError: if one of the launcher's variables is missing, or they do not fit each other.

    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    given = {name: environment.get(name, "") for name in _VARIABLES}
    rank, size, port = (whole_number(given[name], 0, 2**31) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if rank is not None and size and rank < size and given["MASTER_ADDR"] and port and port < 2**16:
        per_node = _number(given["LOCAL_WORLD_SIZE"], size)
        local_rank = _number(given["LOCAL_RANK"], rank % (per_node or 1))
        node = _number(given["GROUP_RANK"], rank // (per_node or 1))
        if size % (per_node or size + 1) == 0 and local_rank < per_node and node < size // per_node:
            return World(rank, size, local_rank, per_node, node)
    found = " ".join(f"{name}={show(text)}" for name, text in given.items() if text)
    raise UsageError(
        f"expected the variables that torchrun sets, and as many ranks on every node, got {found}",
        hint=f"set {', '.join(_VARIABLES[:4])} at least; "
        "or unset RANK and WORLD_SIZE to run on this machine alone",
    )


def _number(text: str, default: int) -> int:
    """Read a number that need not be set; one that is wrong is above all others."""
    found = whole_number(text, 0, _TOO_LARGE) if text else default
    return _TOO_LARGE if found is None else found


def ranks_of(config: Config, *, virtual: bool) -> Devices:
    """Choose the devices of this machine's ranks.

    Raises:
        UsageError: if a GPU is asked for that does not exist.

    """
    if config.gpus is None and config.processes is not None:
        return Devices.of("cuda", range(config.processes)) if virtual else Devices.cpu(config.processes)
    from dpdemo.epochs.devices import chosen_devices, num_virtual

    if not virtual:
        return chosen_devices(config)
    count = num_virtual(config)
    return Devices.of("cuda", range(count) if config.ordinals is None else config.ordinals)


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
