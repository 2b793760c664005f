"""Threads that see the virtual GPUs: PyTorch's dispatch modes are thread-local."""

import contextlib
from collections.abc import Iterator

import torch

from dpdemo.virtual import state
from dpdemo.virtual.patches.legacy import apply_default_type


@contextlib.contextmanager
def seeing_gpus(index: int = 0) -> Iterator[None]:
    """Let this thread see the GPUs of the open block, on device `index`, if it does not yet.

    A GPU's results do not depend on the thread that launches its kernels; a CPU's do. PyTorch gives a thread
    the number of threads that `torch.set_num_threads` set once it first asks for it (`lazy_init_num_threads`,
    aten/src/ATen/Parallel.h), and MKL, if called before, may take another kernel. So each thread asks at
    once.
    """
    session = state.session
    if session is None or torch._C._len_torch_dispatch_stack():
        yield
        return
    torch.get_num_threads()
    current = session.current
    current.inside, current.index = True, index
    try:
        with session.mode(session):
            apply_default_type()
            yield
    finally:
        current.inside = False
