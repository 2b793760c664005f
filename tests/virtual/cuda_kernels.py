"""Write `dpdemo/virtual/ops/cuda_kernels.py` from PyTorch's own list of kernels (run this; needs `pyyaml`).

PyTorch comes with what its CUDA build was generated from: which operator has a kernel for CUDA, whether that
compares its operands' devices, and under which name it says so (torchgen, dest/register_dispatch_key.py).
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import torch
import torchgen
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DeviceCheckType, DispatchKey, NativeFunctionsGroup

TARGET = Path(__file__).parents[2] / "dpdemo" / "virtual" / "ops" / "cuda_kernels.py"
HEADER = '''"""Which kernels for CUDA compare the devices of all operands before they run: torch {version}.

Written by tests/virtual/cuda_kernels.py from native_functions.yaml; do not edit. The name of an operator's
overload follows a dot. STRUCTURED and PLAIN kernels name themselves in two ways. All others leave the
comparison to TensorIterator, or make it themselves.
"""

# ruff: noqa: SIM905 - a thousand names are easier to read, and to compare, as text

'''


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


def module_text(found: dict[str, set[str]]) -> str:
    """Return the module that holds `found`."""
    text = HEADER.format(version=torch.__version__.partition("+")[0])
    for kind, names in found.items():
        lines = textwrap.fill(" ".join(sorted(names)), 106, break_long_words=False, break_on_hyphens=False)
        text += f'{kind} = frozenset(\n    """\n{textwrap.indent(lines, "    ")}\n    """.split()\n)\n'
    return text


if __name__ == "__main__":
    TARGET.write_text(module_text(kernels()))
