"""TorchScript that is older than the block, or comes out of a file, asks where a tensor is too."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from dpdemo.virtual import UnsupportedOpError, suspended, virtual_gpus

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.filterwarnings("ignore:`torch.jit")]
ONE = torch.device("cuda:1")


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, bool, torch.device]:
        return x * self.weight, x.is_cuda, x.device


def ask(x: torch.Tensor) -> tuple[bool, torch.device]:
    return x.is_cuda, x.device


def data() -> torch.Tensor:
    return torch.ones(2, device=ONE)


def file_of(scripted: torch.jit.ScriptModule) -> io.BytesIO:
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return file


def test_what_was_scripted_before_the_block_asks_inside_it() -> None:
    with suspended():
        function, module = torch.jit.script(ask), torch.jit.script(Asking())
        with virtual_gpus(2):
            assert function(data()) == (True, ONE)
            assert module.to(ONE)(data())[1:] == (True, ONE)
            module.to("cpu")
        assert "prim::device" in str(function.graph)
        assert "dpdemo_virtual" not in str(function.graph)


def test_a_loaded_module_asks_and_is_pytorchs_own_when_it_is_saved_again() -> None:
    with suspended():
        file = file_of(torch.jit.script(Asking()))
    for _ in range(2):
        loaded = torch.jit.load(file, map_location=ONE)  # type: ignore[no-untyped-call]
        assert loaded(data())[1:] == (True, ONE)
        assert loaded(data())[0].device == ONE
        file = file_of(loaded)


def test_a_frozen_module_asks_and_its_file_is_pytorchs_own() -> None:
    frozen = torch.jit.freeze(torch.jit.script(Asking().to(ONE).eval()))
    assert frozen(data())[1:] == (True, ONE)
    file = file_of(frozen)
    with zipfile.ZipFile(file) as parts:
        code = b"".join(parts.read(name) for name in parts.namelist() if name.endswith(".py"))
    assert b"prim.device" in code
    assert b"dpdemo_virtual" not in code
    file.seek(0)
    assert torch.jit.load(file, map_location=ONE)(data())[1:] == (True, ONE)  # type: ignore[no-untyped-call]


class Mixed(nn.Module):
    """Tensors of all kinds, on more than one device."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Asking()
        self.register_buffer("steps", torch.zeros(3))
        self.plain = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


def places(module: nn.Module) -> list[str]:
    inner, steps, plain = module.inner.weight, module.steps, module.plain
    return [str(one.device) for one in (inner, steps, plain)]


def test_a_loaded_module_is_where_it_was_saved() -> None:
    module = torch.jit.script(Mixed().to("cuda:2"))
    module.steps = module.steps.to("cuda:1")
    file, extra = io.BytesIO(), {"notes": ""}
    torch.jit.save(module, file, _extra_files={"notes": "mine"})
    file.seek(0)
    loaded = torch.jit.load(file, _extra_files=extra)  # type: ignore[no-untyped-call]
    assert places(loaded) == ["cuda:2", "cuda:1", "cpu"]
    assert [one.requires_grad for one in loaded.parameters()] == [True]
    assert extra == {"notes": b"mine"}
    assert loaded(torch.ones(2, device="cuda:2")).device == torch.device("cuda:2")
    again = torch.jit.load(file_of(loaded))  # type: ignore[no-untyped-call]
    assert places(again)[:2] == ["cuda:2", "cuda:1"]


@pytest.mark.parametrize("where", ["cuda", torch.device("cuda"), "cuda:2"])
def test_a_loaded_module_is_where_map_location_says(where: str | torch.device, tmp_path: Path) -> None:
    torch.jit.script(Mixed().to("cuda:1")).save(tmp_path / "module.pt")
    torch.cuda.set_device(2)
    try:
        loaded = torch.jit.load(tmp_path / "module.pt", map_location=where)  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.set_device(0)
    assert places(loaded) == ["cuda:2"] * 3
    assert places(torch.jit.load(tmp_path / "module.pt", "cpu")) == ["cpu"] * 3  # type: ignore[no-untyped-call]


def test_constants_of_a_frozen_module_come_back_to_their_gpu(tmp_path: Path) -> None:
    frozen = torch.jit.freeze(torch.jit.script(Asking().to(ONE).eval()))
    torch.jit.save(frozen, tmp_path / "frozen.pt")
    loaded = torch.jit.load(tmp_path / "frozen.pt")  # type: ignore[no-untyped-call]
    assert loaded(data())[0].device == ONE
    loaded = torch.jit.load(file_of(frozen))  # type: ignore[no-untyped-call]
    assert loaded(data())[0].tolist() == [1, 1]


def test_constants_of_a_function_come_back_to_their_gpu() -> None:
    constant = data()
    traced = torch.jit.trace(lambda x: x + constant, data())
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    assert torch.jit.load(file)(data()).tolist() == [2, 2]  # type: ignore[no-untyped-call]


def test_constants_on_two_gpus_are_refused_by_name() -> None:
    left, right = torch.ones(2, device="cuda:0"), torch.ones(1, device="cuda:1")
    traced = torch.jit.trace(
        lambda x: (x + left, (x.to("cuda:1") + right)), torch.ones(2, device="cuda:0"), check_trace=False
    )
    with pytest.raises(UnsupportedOpError, match=r"torch\.jit\.save: constants .* \(cuda:0, cuda:1\)"):
        torch.jit.save(traced, io.BytesIO())


def test_a_file_that_outlives_the_block_loads_without_it() -> None:
    file = file_of(torch.jit.script(Mixed().to(ONE)))
    with suspended():
        assert places(torch.jit.load(file)) == ["cpu"] * 3  # type: ignore[no-untyped-call]
