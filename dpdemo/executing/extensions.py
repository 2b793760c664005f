"""Refuse to build CUDA extensions: no compiler of CUDA makes code for a virtual GPU."""

import functools
from pathlib import Path
from typing import Any


def refuse_cuda_extensions(cpp_extension: Any) -> None:
    """Make `torch.utils.cpp_extension` name the first source that needs nvcc, and build what needs none."""
    build = cpp_extension._jit_compile

    @functools.wraps(build)
    def jit_compile(name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
        from dpdemo.virtual import UnsupportedOpError

        for source in [sources] if isinstance(sources, str) else sources:
            if cpp_extension._is_cuda_file(str(source)):
                made = f"what nvcc makes of {Path(source).name}"
                raise UnsupportedOpError(f"CUDA extension {name}: a virtual GPU does not run {made}")
        return build(name, sources, *args, **kwargs)

    cpp_extension._jit_compile = jit_compile
