"""The room's door: what it offers, what it loads, and the console for a command."""

import importlib
import pkgutil
import sys

import processes
import pytest

import dpdemo
from dpdemo import render, reports
from dpdemo.reports.base import Report
from dpdemo.saving import endings


def run(code: str, **environment: str) -> str:
    """Run Python as a pipe's upstream, without a terminal."""
    environment = {"PYTHONPATH": ":".join(sys.path), **environment}
    done = processes.run([sys.executable, "-c", code], check=True, env=environment, input="")
    return done.stdout


LOADED = (
    "import sys; print(*sorted(m for m in sys.modules if m in {'torch','rich','typer','pydantic','ruamel'}))"
)


def test_formats_and_endings_are_pinned():
    drawing = render.drawing_of(dpdemo.simulate())
    assert tuple(drawing.texts) == ("json", "csv", "markdown", "transcript")
    assert endings(drawing.texts) == (".svg", ".html", ".txt", ".json", ".csv", ".md")
    assert all(hasattr(render, name) for name in render.__all__)


def test_every_report_has_a_room_that_draws_it():
    for module in pkgutil.iter_modules(reports.__path__, "dpdemo.reports."):
        importlib.import_module(module.name)
    kinds = {kind.__name__ for kind in Report.__subclasses__()}

    assert kinds == set(render._DRAWN_IN)
    for room in render._DRAWN_IN.values():
        assert callable(importlib.import_module(f"dpdemo.render.{room}").drawing)


def test_importing_the_room_loads_no_library():
    assert run(f"import dpdemo.render; {LOADED}").split() == []


def test_a_simulated_table_needs_neither_torch_nor_typer_nor_yaml():
    code = f"""
import dpdemo
from dpdemo.render import make_console, write
write(dpdemo.simulate(gpus=3), "table", make_console())
{LOADED}
"""

    assert run(code).splitlines()[-1].split() == ["pydantic", "rich"]


@pytest.mark.parametrize(("environment", "width"), [({}, 80), ({"COLUMNS": "47"}, 47)])
def test_a_pipe_is_80_columns_wide_unless_told_otherwise(environment, width):
    code = "from dpdemo.render import make_console as m; print(m().width, m(stderr=True).width)"

    assert run(code, **environment).split() == [str(width)] * 2


@pytest.mark.parametrize("form", ["table", "transcript", "json", "csv", "markdown"])
def test_every_format_survives_a_terminal_that_knows_ascii_only(form):
    code = f"""
import dpdemo
from dpdemo.render import make_console, write
write(dpdemo.simulate(gpus=20, batch_size=25, model="módulo:Größe"), {form!r}, make_console())
"""

    assert run(code, PYTHONIOENCODING="ascii").isascii()
