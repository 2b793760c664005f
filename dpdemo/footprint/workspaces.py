"""What CUDA's libraries allocate beside the tensors: a constant, since nobody can ask without a GPU.

PyTorch gives each cuBLAS handle a workspace from its own allocator, and keeps it: 32 MiB on Hopper and
Blackwell, 8.125 MiB on other GPUs (`parseChosenWorkspaceSize`, aten/src/ATen/cuda/CublasHandlePool.cpp).
The thread that runs the forward pass has a handle on each GPU, and autograd's own thread another. Which card
it will be is not known here, so the larger size is taken.

Not counted are cuDNN's workspaces, which live for the length of a call, and the CUDA context, which is no
memory of PyTorch's allocator (some hundred MiB; a card's capacity is what is free beside it).
"""

HANDLE_BYTES = 32 * 2**20
SMALL_HANDLE_BYTES = 4096 * 1024 * 2 + 16 * 1024 * 8
_SMALL_BELOW = 9  # the major compute capability of Hopper


def workspace_bytes(*, inference: bool, capability: int = _SMALL_BELOW) -> int:
    """Return the bytes of cuBLAS's workspaces on one GPU of a major compute capability."""
    handle = HANDLE_BYTES if capability >= _SMALL_BELOW else SMALL_HANDLE_BYTES
    return handle if inference else 2 * handle
