"""The promises of the package as a whole: its names, its version, and that it starts without torch."""

import ast
import importlib
import inspect
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from processes import run

import dpdemo
from dpdemo.errors import DpdemoError, RunError, UsageError

ROOT = Path(__file__).parent.parent


def modules_after(code: str) -> set[str]:
    """The modules that a fresh Python has loaded after running the code."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = run(command, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import dpdemo",
        "import dpdemo; dpdemo.simulate(gpus=8).totals",
        "from dpdemo import Config, SplitReport, UsageError, load_config",
        "import dpdemo, dpdemo.results.advice as f; f.advice(dpdemo.simulate(gpus=8))",
    ],
)
def test_previewing_imports_neither_torch_nor_rich(code):
    loaded = modules_after(code)
    assert "dpdemo" in loaded
    assert not loaded & {"torch", "numpy", "rich", "typer"}


def test_the_tab_key_imports_no_torch():
    offered = "from dpdemo.cli import completion as c; c.models(''); c.rules(''); c.links(); c.losses()"
    assert "torch" not in modules_after(offered)


@pytest.mark.slow
def test_the_tests_above_would_see_torch():
    assert "torch" in modules_after("import dpdemo, torch")


def test_yaml_and_pydantic_wait_until_they_are_needed():
    assert not modules_after("import dpdemo") & {"pydantic", "ruamel.yaml", "dpdemo.config.fields"}
    assert "ruamel.yaml" not in modules_after("import dpdemo; dpdemo.simulate(gpus=8)")


def test_every_public_name_can_be_imported():
    for name in dpdemo.__all__:
        assert getattr(dpdemo, name).__module__.startswith("dpdemo")
        assert name in dir(dpdemo)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'dpdemo' has no attribute 'nothing'$"):
        dpdemo.nothing  # noqa: B018 - the look-up is the test


def test_type_checkers_see_the_loaded_names():
    tree = ast.parse(Path(dpdemo.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {name.name: node.module for node in block.body for name in node.names}
    assert typed == dpdemo._HOMES
    assert sorted(typed) == sorted(dpdemo.__all__)
    assert all(hasattr(importlib.import_module(home), name) for name, home in typed.items())


def test_the_version_of_the_package_is_that_of_the_module():
    assert metadata.version("dpdemo") == dpdemo.__version__


@pytest.mark.parametrize(("kind", "code"), [(DpdemoError, 1), (RunError, 1), (UsageError, 2)])
def test_errors_carry_their_exit_code_and_the_next_step(kind, code):
    error = kind("expected this, got that", hint="do so")
    assert (str(error), error.message, error.hint) == ("expected this, got that",) * 2 + ("do so",)
    assert isinstance(error, DpdemoError)
    assert kind.exit_code == code


def test_a_usage_error_is_a_value_error_and_a_failed_run_is_none():
    assert issubclass(UsageError, ValueError)
    assert not issubclass(RunError, ValueError)


@pytest.mark.parametrize(
    "name", [name for name in dpdemo.__all__ if inspect.isfunction(inspect.unwrap(getattr(dpdemo, name)))]
)
def test_public_functions_document_arguments_and_result(name):
    function = inspect.unwrap(getattr(dpdemo, name))
    text = inspect.getdoc(function)
    code = function.__code__  # the signature lists the keys of the config in place of **overrides
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]
    said = re.findall(r"^    (\w+):", text.partition("Args:")[2].partition("Returns:")[0], re.MULTILINE)
    assert set(said) == set(taken)
    assert "Returns:" in text
