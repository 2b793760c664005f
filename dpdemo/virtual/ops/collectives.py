"""What is known of this process's collectives, and one call of one (`c10d.py` runs it)."""

from collections.abc import Callable
from typing import Any, NamedTuple

listeners: list[Callable[["Call"], None]] = []
"""Each is called before a collective."""
nccl_groups: set[str] = set()
"""Names of the groups whose backend is NCCL alone: all their tensors are on a GPU."""
mixed_groups: set[str] = set()
"""Names of the groups that have NCCL for tensors on a GPU, and another backend for those of the host."""
second_groups: set[str] = set()
"""Names of the groups whose NCCL is the second implementation (torch 2.15)."""
coalesced: dict[str, list[Any]] = {}
"""By name of the group, the works to wait for once its coalescing manager closes."""

gpu_of_group: dict[str, int] = {}
"""By name of the group, the GPU of its DistributedDataParallel's parameters."""

FUNCTIONAL = {"_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
"""Namespaces of collectives that return their result, as DTensor and tensor parallel use them."""
BETWEEN_TWO = {"send", "recv_"}
BY_NUMBER_OF_ELEMENTS = {"_allgather_base_", "_reduce_scatter_base_"}


class Call(NamedTuple):
    """One call of a collective."""

    name: str
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    group: Any
    reduction_at: int | None
    """Which argument is the ReduceOp."""
    root_at: int | None
    """The position of the root's rank among the arguments; None without a root."""
    reduction: int | None
    """The number of its reduction (`ReduceOp.RedOpType`)."""
    is_async: bool
    """Whether the program gets its work, and so may ask for its future."""

    def run(self) -> Any:
        """Leave it to gloo as it is."""
        return self.func(*self.args, **self.kwargs)
