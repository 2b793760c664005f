"""Names of a user's models and functions: the forms of a TARGET, the same in every command.

    model.py:Net      a name in a file; `model.py` alone is its one Module class
    pkg.mod:Net       a name in an importable module; `pkg.mod.Net` is understood too
    timm:vit_tiny_patch16_224, torchvision:resnet50, transformers:gpt2-xl
                      a model of one of these libraries, without weights

Reading a target runs nothing and imports nothing; `models/user.py` loads what it names.
"""

import ast
import os
from pathlib import Path
from typing import NamedTuple

from dpdemo.errors import UsageError
from dpdemo.files import current_folder, read_bytes
from dpdemo.wording import show_key

FORMS = "`model.py:Net` or `pkg.mod:Net`"
LIBRARIES = ("transformers", "torchvision", "timm")


class Target(NamedTuple):
    """A parsed TARGET: the `file`, `module` or `library`, and the `name` in it ("" if there is none).

    Without a colon the last parts of `module` may be names in it: only an import can tell.
    """

    text: str
    file: str = ""
    module: str = ""
    name: str = ""
    library: str = ""

    def __str__(self) -> str:
        return self.text


def parse_target(text: str) -> Target:
    """Read a target.

    Raises:
        UsageError: if the text has none of the forms.

    """
    target = _parsed(text)
    if target is None:
        raise UsageError(
            f"expected a model as {FORMS}, got {show_key(text) if text else 'nothing'}",
            hint="write the file, a colon and the name in it: `model.py:Net`",
        )
    return target


def expect_file(target: Target) -> None:
    """Check that the file of a target is there.

    Raises:
        UsageError: if it is not.

    """
    if target.file and not Path(target.file).is_file():
        raise UsageError(
            f"expected a Python file, got `{target.file}`, which does not exist",
            hint=f"looked in {current_folder()}",
        )


def is_target(text: str) -> bool:
    """Return whether a text has one of the forms."""
    return _parsed(text) is not None


def _parsed(text: str) -> Target | None:
    library, colon, name = text.partition(":")
    if library in LIBRARIES and name:
        return Target(text, library=library, name=name)
    place, colon, name = text.rpartition(":") if ":" in text else (text, "", "")
    if colon and not _is_dotted(name):
        return None
    if place.endswith(".py") or os.sep in place:
        return Target(text, file=place, name=name) if place.endswith(".py") else None
    if not _is_dotted(place) or not (colon or "." in place):
        return None
    return Target(text, module=place, name=name)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def looks_like_script(text: str) -> bool:
    """Return whether a file is a program to be run: no name follows it, and importing it does something.

    A missing file is a program too, whose error then names it.
    """
    target = _parsed(text)
    if target is None or not target.file or target.name:
        return False
    try:
        tree = ast.parse(read_bytes(target.file))
    except (OSError, SyntaxError, ValueError):
        return True  # Python itself shall say what is wrong with it
    return any(_does_something(statement) for statement in tree.body)


def _does_something(statement: ast.stmt) -> bool:
    """Return whether a statement of a module is more than a definition, an import or a docstring."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return isinstance(statement, (ast.For, ast.While, ast.With, ast.If))
