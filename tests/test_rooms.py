"""The rooms of the project, as docs/architecture.md has them: imports run downwards only."""

import ast
import re
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "dpdemo"
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text()
ONLY_IN = {"rich": {"results", "cli"}, "typer": {"cli"}, "ruamel": {"config"}}
MOST_ARROWS = 130


def table():
    """The rooms of the page: name → (floor, the rooms that it may import)."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| .* \| (.*?) ?\|$", PAGE, re.MULTILINE)
    floors = {room: int(floor) for floor, room, _ in rows}
    below = {room: {other for other in floors if floors[other] < floors[room]} for room in floors}
    named = {room: set(re.findall(r"\w+", cell)) for _, room, cell in rows}
    return {room: (floors[room], below[room] if cells == {"any"} else cells) for room, cells in named.items()}


ROOMS = table()
FILES = {
    ".".join(("dpdemo", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@cache
def imports_of(module):
    """All modules that one of ours imports, in functions, for type checkers and by name too."""
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else node.module for name in names}
    return found


def room_of(module):
    return module.split(".")[1] if module.count(".") else ""


def ours(module):
    return {other for other in imports_of(module) if other in FILES and other not in {"dpdemo", module}}


IN_ROOMS = [module for module in FILES if room_of(module) not in {"", "__main__"}]


def test_every_room_has_a_row_and_every_row_a_room():
    assert {room_of(module) for module in IN_ROOMS} == set(ROOMS)


def test_at_most_eight_files_lie_loose():
    assert len(list(PACKAGE.glob("*.py"))) <= 8


def test_a_row_names_rooms_of_lower_floors_only():
    for room, (floor, may_import) in ROOMS.items():
        wrong = {other for other in may_import if other not in ROOMS or ROOMS[other][0] >= floor}
        assert not wrong, f"{room} may not import {wrong}"


def test_a_file_imports_only_from_its_own_room_and_those_in_its_row():
    for module in IN_ROOMS:
        room = room_of(module)
        wrong = {other for other in ours(module) if room_of(other) not in {room, *ROOMS[room][1]}}
        assert not wrong, f"{module} imports {wrong}"


def test_no_two_files_import_each_other_however_far_around():
    left = {module: ours(module) for module in FILES if module != "dpdemo"}
    ends = {"any"}
    while ends:  # what imports nothing of the rest, and what nothing of the rest imports, is in no circle
        wanted = set().union(*left.values())
        ends = {module for module, needs in left.items() if not needs or module not in wanted}
        left = {module: needs - ends for module, needs in left.items() if module not in ends}
    assert not left


def test_there_are_few_arrows_between_rooms():
    """The files that lie loose count as one room, which nearly all the others need."""
    loose = {path.stem for path in PACKAGE.glob("*.py")}
    rooms = {module: "loose" if room_of(module) in loose else room_of(module) for module in FILES}
    arrows = {(rooms[module], rooms[other]) for module in IN_ROOMS for other in ours(module)}
    assert len({(importer, other) for importer, other in arrows if importer != other}) <= MOST_ARROWS


def test_heavy_packages_stay_in_their_rooms():
    for module in IN_ROOMS:
        for package in {name.partition(".")[0] for name in imports_of(module)}:
            assert room_of(module) in ONLY_IN.get(package, {room_of(module)}), f"{module} imports {package}"


def test_shared_test_modules_have_unique_names():
    """They are imported by their bare names: of two, every test would get the first."""
    shared = [
        path for path in sorted(Path(__file__).parent.rglob("*.py")) if not path.stem.startswith("test_")
    ]
    names = [path.stem for path in shared if path.name != "conftest.py"]
    assert [name for name in names if names.count(name) > 1] == []
