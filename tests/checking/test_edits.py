"""Changes of lines that several statements share."""

import ast

import pytest

from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import tree_of

ONE_LINE = "class A:\n    def f(self): a(); b()\n"
WITH_COLONS = "def f():\n    a(); b()\n    c()\n"
PLAIN = "def f():\n    a()\n    b()\n"


@pytest.mark.parametrize(
    ("source", "after"),
    [
        (ONE_LINE, "def f(self): a(); b(); new()"),
        (WITH_COLONS, "a(); b()\nnew()"),
        (PLAIN, "a()\nnew()"),
    ],
    ids=["one_line", "with_colons", "plain"],
)
def test_a_line_behind_a_statement_leaves_a_program(source, after, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(source)
    first = next(node for node in ast.walk(tree_of(str(file))) if isinstance(node, ast.Expr))
    edits = Edits(str(file))
    edits.behind(first, "new()")
    (change,) = edits.changes()
    assert change.after == after
    ast.parse(source.replace(source.splitlines()[change.place.line - 1].strip(), change.after.split("\n")[0]))
