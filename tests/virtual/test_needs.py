"""A release of PyTorch that lacks a name which the emulation uses is told by that name."""

from __future__ import annotations

import sys

from processes import run


def test_a_missing_private_name_is_one_error_with_the_release() -> None:
    code = "import torch; del torch._C._nn._parse_to; import dpdemo.virtual"
    done = run([sys.executable, "-c", code])
    assert "VirtualGpuError: virtual GPUs need a name of PyTorch that torch 2." in done.stderr
    assert "_parse_to" in done.stderr
