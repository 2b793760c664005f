"""A user's module may set another default device or dtype on import: dpdemo's own tensors ignore both."""

import ast
import sys
from pathlib import Path

import pytest
import torch
from fastpart import mostly_slow
from processes import run

import dpdemo
from dpdemo.models.noise import epoch_order

ROOT = Path(dpdemo.__file__).parent
# no module of a user's is there when a library's model is built
FILES = [path for path in sorted(ROOT.rglob("*.py")) if "libraries" not in path.parent.name]
MAKERS = {
    "arange", "as_tensor", "empty", "empty_strided", "eye", "full", "linspace", "normal", "ones", "rand",
    "randint", "randn", "randperm", "scalar_tensor", "tensor", "zeros",
}  # fmt: skip
SAMPLE = ("--set", "input_size=4", "--set", "dtype=float64")
MODEL = """
import torch
from torch import nn

torch.set_default_device("cuda")
torch.set_default_dtype(torch.float64)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x):
        return self.fc(x) * self.scale
"""


def makes_a_tensor(node):
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in MAKERS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "torch"
    )


def test_every_new_tensor_names_its_device():
    calls = [
        (path, node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if makes_a_tensor(node)
    ]
    assert calls
    silent = [
        f"{path}:{call.lineno}: {ast.unparse(call)}"
        for path, call in calls
        if not {"device", None} & {key.arg for key in call.keywords}
    ]
    assert silent == []


@pytest.mark.parametrize(
    "command",
    mostly_slow(
        [
            ["check", "TARGET", "--input", "8x4:double"],
            ["memory", "TARGET", "--gpus", "2", "--input", "8x4:double"],
            ["doctor", "TARGET", "--input", "8x4:double"],
            ["run", "--virtual", "--gpus", "2", "--model", "TARGET", *SAMPLE],
            ["explain", "--virtual", "--gpus", "2", "--model", "TARGET", *SAMPLE],
        ],
        every=5,
    ),
    ids=lambda command: command[0],
)
def test_a_model_whose_module_sets_the_defaults_is_looked_at_like_any_other(command, tmp_path):
    (tmp_path / "defaults.py").write_text(MODEL)
    command = ["defaults:Model" if word == "TARGET" else word for word in command]
    done = run([sys.executable, "-m", "dpdemo", *command], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_data_ignores_the_default_device():
    before = epoch_order(10, 0, shuffle=True)
    torch.set_default_device("meta")
    try:
        after = epoch_order(10, 0, shuffle=True)
    finally:
        torch.set_default_device(None)
    assert torch.equal(before, after)
