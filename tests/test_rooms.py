"""The rooms and floors of the project: imports run downwards only."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dpdemo"

FLOORS = {
    "errors": 0, "bytesize": 0,
    "split": 1, "devices": 1, "gpus": 1, "wording": 1, "catalogue": 1, "config": 1, "yamlfile": 1,
    "report": 1, "findings": 1, "prediction": 1, "balance": 1, "explanation": 1, "atomic": 1, "tolerance": 1,
    "memoryreport": 1, "recording": 1, "verdict": 1, "program": 1, "execreport": 1,
    "sampler": 1, "contrast": 1, "trace": 1, "emit": 1, "strategy": 1, "distribution": 1, "prediction_ddp": 1,
    "inputspec": 1,
    "virtual": 2, "failure": 2, "data": 2, "usermodel": 2, "models": 2, "observer": 2,
    "movement": 2, "checksum": 2, "watch": 2,
    "runner": 3, "walkthrough": 3, "recorder": 3, "replayer": 3, "execution": 3, "comparison": 3,
    "preflight": 3, "footprint": 3,
    "render": 4,
    "cli": 5, "pytest_plugin": 5,
}  # fmt: skip
TORCH_FREE = {name for name, floor in FLOORS.items() if floor in {0, 1, 4}} | {"failure"}
ONLY_IN = {"rich": {"render", "cli"}, "typer": {"cli"}, "ruamel": {"yamlfile"}}


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path):
    """All modules that a file imports, in functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE or not path.stem.startswith("__")
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_its_own_floor_and_below(path):
    room = room_of(path)
    for module in imports_of(path):
        parts = module.split(".")
        if parts[0] == "dpdemo" and len(parts) > 1 and parts[1] in FLOORS and room != "errors":
            assert FLOORS[parts[1]] <= FLOORS[room], f"{path.name} reaches up to {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_stay_in_their_rooms(path):
    room = room_of(path)
    for module in imports_of(path):
        package = module.partition(".")[0]
        assert room in ONLY_IN.get(package, {room}), f"{path.name} imports {package}"
        if room in TORCH_FREE:
            assert package != "torch", f"{path.name} is to be free of torch"


def test_virtual_knows_nothing_of_the_rest():
    for path in (PACKAGE / "virtual").rglob("*.py"):
        for module in imports_of(path):
            known = ("dpdemo.virtual", "dpdemo.bytesize")  # how sizes are written is nobody's own
            assert not module.startswith("dpdemo") or module.startswith(known), f"{path}: {module}"
