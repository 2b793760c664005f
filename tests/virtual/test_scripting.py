"""TorchScript that is older than the block, or comes out of a file, asks where a tensor is too."""

from __future__ import annotations

import io
import zipfile

import pytest
import torch
from torch import nn

from dpdemo.virtual import suspended, virtual_gpus

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
