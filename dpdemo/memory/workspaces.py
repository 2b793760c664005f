"""What cuBLAS allocates beside the tensors: a constant of the card, since without a GPU it cannot be asked.

PyTorch gives each cuBLAS handle a workspace from its own allocator, and keeps it: 32 MiB on Hopper and
Blackwell, 8.125 MiB on other GPUs (`parseChosenWorkspaceSize`, aten/src/ATen/cuda/CublasHandlePool.cpp).
The thread that runs the forward pass has a handle on each GPU, and autograd's own thread another. Where the
card is not named the larger size is taken.
"""

HANDLE_BYTES = 32 * 2**20
SMALL_HANDLE_BYTES = 4096 * 1024 * 2 + 16 * 1024 * 8
_SMALL_BELOW = 9  # the major compute capability of Hopper


def workspace_sizes(*, inference: bool, capability: int | None = None) -> list[int]:
    """Return the bytes of each of cuBLAS's workspaces on one GPU of a major compute capability."""
    is_small = capability is not None and capability < _SMALL_BELOW
    return [SMALL_HANDLE_BYTES if is_small else HANDLE_BYTES] * (1 if inference else 2)
