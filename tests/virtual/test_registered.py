"""Operators that a program registers in Python for a device (`torch.library.Library`)."""

import pytest
import torch

from dpdemo.virtual import UnsupportedOpError

pytestmark = pytest.mark.usefixtures("gpus")
SPACE = "dpdemo_tests_registered"


@pytest.fixture
def library():
    made = torch.library.Library(SPACE, "DEF")
    made.define("scale(Tensor x) -> Tensor")
    yield made
    made._destroy()


def scale(x):
    return getattr(torch.ops, SPACE).scale(x)


def test_each_device_takes_the_code_that_was_written_for_it(library):
    seen = []

    def triple(x):
        seen.append(x.device)
        return x * 3

    library.impl("scale", lambda x: x * 2, "CPU")
    library.impl("scale", triple, "CUDA")
    on_gpu = scale(torch.ones(2, device="cuda:1"))
    assert (on_gpu.tolist(), on_gpu.device, seen) == ([3, 3], torch.device("cuda:1"), [on_gpu.device])
    assert scale(torch.ones(2)).tolist() == [2, 2]


def test_code_that_comes_later_is_taken_from_then_on(library):
    library.impl("scale", lambda x: x * 2, "CPU")
    with pytest.raises(NotImplementedError, match=f"^Could not run '{SPACE}::scale' with arguments from the"):
        scale(torch.ones(1, device="cuda"))
    library.impl("scale", lambda x: x * 3, "CUDA")
    assert scale(torch.ones(1, device="cuda")).tolist() == [3]


def test_code_for_cuda_alone_needs_none_for_the_cpu(library):
    library.impl("scale", lambda x: x * 3, "CUDA")
    assert scale(torch.ones(1, device="cuda")).tolist() == [3]
    with pytest.raises(NotImplementedError):
        scale(torch.ones(1))


def test_code_for_every_device_is_taken_on_a_gpu(library):
    library.impl("scale", lambda x: x * 2, "CPU")
    library.impl("scale", lambda x: x + torch.ones_like(x), "CompositeExplicitAutograd")
    assert scale(torch.ones(1, device="cuda")).tolist() == [2]


def test_operators_of_pytorch_may_get_code_for_cuda():
    override = torch.library.Library("aten", "IMPL")
    assert torch.cosh(torch.zeros(1, device="cuda")).tolist() == [1]
    override.impl("cosh", lambda x: x + 7, "CUDA")
    try:
        assert torch.cosh(torch.zeros(1, device="cuda")).tolist() == [7]
        assert torch.cosh(torch.zeros(1)).tolist() == [1]
    finally:
        override._destroy()
    assert torch.cosh(torch.zeros(1, device="cuda")).tolist() == [1]


def test_operands_of_the_code_for_cuda_are_checked(library):
    library.define("add(Tensor x, Tensor y) -> Tensor")
    library.impl("add", lambda x, y: x + y, "CUDA")
    with pytest.raises((RuntimeError, UnsupportedOpError), match="cuda:0"):
        getattr(torch.ops, SPACE).add(torch.ones(1, device="cuda"), torch.ones(1))


def test_what_pytorch_replaces_for_cuda_itself_takes_the_cpus_code():
    """As builds with Triton do with `bmm`: the operator is sent on to one of `_native`."""
    native = torch.library.Library("_native", "FRAGMENT")
    replaced = torch.library.Library("aten", "IMPL")
    try:
        native.define("erfinv_triton_0(Tensor self) -> Tensor")
        for library, name in ((native, "erfinv_triton_0"), (replaced, "erfinv")):
            library.impl(name, lambda _: pytest.fail("it needs CUDA"), "CUDA")
        assert torch.zeros(1, device="cuda").erfinv().tolist() == [0]
    finally:
        native._destroy()
        replaced._destroy()
