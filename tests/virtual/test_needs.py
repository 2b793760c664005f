"""A new torch fails by name: every private name that the emulation calls is in one table."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from dpdemo.virtual import VirtualGpuError, needs

PACKAGE = Path(needs.__file__).parent
ONLY_IF_IMPORTED = "torch._dynamo."
OPERATORS = "torch.ops."


def aliases_in(tree: ast.AST) -> dict[str, str]:
    """What each name of a file stands for, where that is a part of torch."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or "torch": alias.name if alias.asname else "torch"
                      for alias in node.names if alias.name.split(".")[0] == "torch"}  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Attribute):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            first, _, rest = ast.unparse(node.value).partition(".")
            if isinstance(target, ast.Name) and first in found:
                found.setdefault(target.id, f"{found[first]}.{rest}")
    return found


def private_names(path: Path) -> set[str]:
    """The private names of torch that a file reads."""
    tree = ast.parse(path.read_text())
    aliases = aliases_in(tree)
    names = set(aliases.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            if first in aliases and all(part.isidentifier() for part in rest.split(".")):
                names.add(f"{aliases[first]}.{rest}")
    return {
        name for name in names if any(p.startswith("_") and not p.startswith("__") for p in name.split("."))
    }


def is_listed(name: str) -> bool:
    return any(
        (one + ".").startswith(name + ".") or (name + ".").startswith(one + ".") for one in needs.NEEDED
    )


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_every_private_name_that_a_file_reads_is_in_the_table(path: Path) -> None:
    names = {name for name in private_names(path) if not name.startswith((ONLY_IF_IMPORTED, OPERATORS))}
    assert not {name for name in names if not is_listed(name)}


def test_this_torch_has_them_all() -> None:
    needs.check_torch()


@pytest.mark.parametrize("name", needs.NEEDED)
def test_a_name_that_is_missing_is_told_with_what_it_is_for(name: str) -> None:
    def without(wanted: str) -> Any:
        if wanted == name:
            raise AttributeError(wanted)
        return needs.find(wanted)

    with pytest.raises(VirtualGpuError) as caught:
        needs.check_torch(without)
    said = str(caught.value)
    assert f"  {name}: {needs.NEEDED[name]}" in said
    assert torch.__version__ in said
    assert needs.TESTED in said


def test_a_name_that_is_really_gone_is_found_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_len_torch_dispatch_stack")
    with pytest.raises(VirtualGpuError, match=r"torch\._C\._len_torch_dispatch_stack: whether and how"):
        needs.check_torch()
