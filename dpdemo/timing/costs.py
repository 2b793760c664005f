"""The costs of a step besides its copies, as ranges, with the source of each number."""

from typing import Final, NamedTuple


class Cost(NamedTuple):
    """From the least to the most."""

    low: float
    high: float


OPERATOR_MS: Final = Cost(0.004, 0.020)
"""To launch one operator from Python, which holds the interpreter's lock meanwhile.

2-7 µs for an operator without a kernel (pytorch/pytorch#41383), 4 µs and more with its kernel's launch; with
the module and its Python code around it some 20 µs.
"""

REPLICA_MS: Final = Cost(0.008, 0.025)
"""To copy one module, or to attach one tensor to its copy, in `torch.nn.parallel.replicate`: Python alone.

Measured on CPUs with the broadcast left out; docs/speed-up.md has the command.
"""

BUCKET_BYTES: Final = 10 * 2**20
"""The bucket that replicate broadcasts, and its backward reduces: `buffer_size` in nn/parallel/comm.py."""

BUCKET_MS: Final = Cost(0.020, 0.070)
"""The overhead of each bucket besides its copy.

A collective of NCCL starts (12 µs over two GPUs, 42 µs over eight: tinygrad/open-gpu-kernel-modules#17,
NVIDIA/nccl#1530), and the tensors are packed at the speed of the GPU's memory (10-25 µs).
"""

FORWARD_SHARE: Final = 1 / 3
"""Of a step: a backward multiplies twice as much as its forward (Kaplan et al. 2020, section 2.1)."""

DDP_SHARE: Final = Cost(0.014, 0.055)
"""By how much DDP's hooks and bucket copies lengthen a step of one GPU.

`no ddp` against `1M/1G` in the table of PyTorch's own benchmark (benchmarks/distributed/ddp/README.md).
"""

DDP_BUCKET_BYTES: Final = 25 * 2**20
"""The bucket that DDP averages: `bucket_cap_mb` in torch/nn/parallel/distributed.py."""

COPY_MS: Final = Cost(0.010, 0.030)
"""The latency of any copy between two GPUs: 11 µs between two RTX 4090 (muellerzr's gist fbfabd0f)."""

HOST_GB_S: Final = Cost(3.0, 12.0)
"""From the host to a GPU: 12 from pinned memory over PCIe 3.0, a quarter of it from any other
(NVIDIA's blog, "How to Optimize Data Transfers in CUDA C/C++")."""
