"""Kernels in Triton, for a module that is imported while virtual GPUs are there."""

import triton
import triton.language as tl
from triton.language.extra.libdevice import j0, rsqrt


@triton.jit
def scaled(given, out, number, factor, block: tl.constexpr):
    """Write the numbers times a factor, whose type the kernel asks for."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    rows = tl.load(given + place, mask=place < number)
    tl.store(out + place, rows * factor.to(tl.float32), mask=place < number)


@triton.autotune(configs=[triton.Config({"block": 32}), triton.Config({"block": 64})], key=["number"])
@triton.jit
def rooted(given, out, number, block: tl.constexpr):
    """Write one over the root of each number."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + place, rsqrt(tl.load(given + place, mask=place < number, other=1.0)), mask=place < number)


@triton.jit
def bessel(given, out):
    """Write a number's Bessel function, which PyTorch has under another name."""
    tl.store(out, j0(tl.load(given)))


@triton.jit
def summed(given, out, number, block: tl.constexpr):
    """Add up the numbers."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(out, tl.sum(tl.load(given + place, mask=place < number, other=0.0)))
