"""Write `dpdemo/virtual/ops/cuda_kernels.txt` from PyTorch's own list of kernels (run this; needs `pyyaml`).

PyTorch comes with what its CUDA build was generated from: which operator has a kernel for CUDA, whether that
compares its operands' devices, and under which name it says so (torchgen, dest/register_dispatch_key.py).
"""

import textwrap
from pathlib import Path

import torch
import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DeviceCheckType, DispatchKey, NativeFunctionsGroup

TARGET = Path(__file__).parents[2] / "dpdemo" / "virtual" / "ops" / "cuda_kernels.txt"
HEADER = (
    "torch {version}: kernels for CUDA that compare the devices of all operands before they run. "
    "Written by tests/tools/cuda_kernels.py.\n"
)


def kernels() -> dict[str, set[str]]:
    """Return the names of operators whose kernel for CUDA compares devices, by kind."""
    root = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(str(root / "native_functions.yaml"), str(root / "tags.yaml"))
    cuda = parsed.backend_indices[DispatchKey.CUDA]
    found: dict[str, set[str]] = {"STRUCTURED": set(), "PLAIN": set()}
    for group in get_grouped_native_functions(parsed.native_functions):
        is_group = isinstance(group, NativeFunctionsGroup)
        is_structured = is_group and group.structured and cuda.has_kernel(group)
        for function in group.functions() if is_group else [group]:
            if not is_structured and cuda.get_kernel(function) is None:
                continue
            if function.device_check is not DeviceCheckType.NoCheck:
                found["STRUCTURED" if is_structured else "PLAIN"].add(str(function.func.name))
    return found


def text_of(found: dict[str, set[str]]) -> str:
    """Return the file that holds `found`."""
    text = HEADER.format(version=torch.__version__.partition("+")[0])
    for kind, names in found.items():
        lines = textwrap.fill(" ".join(sorted(names)), 118, break_long_words=False, break_on_hyphens=False)
        text += f"\n{kind}\n{lines}\n"
    return text


if __name__ == "__main__":
    TARGET.write_text(text_of(kernels()))
