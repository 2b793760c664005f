"""The program as a whole: its commands, its help, its version."""

import importlib
import tomllib
from pathlib import Path

import pytest
from processes import run

import dpdemo as package
from dpdemo.cli.group import COMMANDS
from dpdemo.config.fields import Config

ROOT = Path(package.__file__).parent.parent


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_in_the_table_exists_and_starts_its_help_with_its_summary(dpdemo, name):
    done = dpdemo(name, "--help")
    assert done.code == 0
    assert " ".join(COMMANDS[name].split()) in " ".join(done.out.split())


def test_every_command_module_is_in_the_table():
    modules = {path.stem for path in (ROOT / "dpdemo/cli").glob("*.py")}
    with_app = {
        name for name in modules if hasattr(importlib.import_module(f"dpdemo.cli.{name}"), "command_app")
    }
    assert with_app - {"group"} == set(COMMANDS)


@pytest.mark.parametrize("name", ["simulate", "run"])
def test_every_key_of_the_config_is_an_option(dpdemo, name):
    said = dpdemo(name, "--help").out
    for key in Config.model_fields:
        assert f"--{key.replace('_', '-')}" in said


def test_the_version_is_the_packages(dpdemo):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert dpdemo("--version").out == f"dpdemo {declared}\n"


def test_help_loads_no_command_and_no_torch():
    import sys

    code = """
import sys
sys.argv = ["dpdemo", "--help"]
from dpdemo.cli import main
try:
    main()
except SystemExit:
    pass
print([name for name in ("torch", "rich", "dpdemo.cli.run", "dpdemo.config.fields") if name in sys.modules])
"""
    done = run([sys.executable, "-c", code], check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "as_option"),
    [
        (["help"], ["--help"]),
        (["-h"], ["--help"]),
        (["version"], ["--version"]),
        (["help", "simulate"], ["simulate", "--help"]),
        (["run", "-h"], ["run", "--help"]),
    ],
)
def test_what_people_type_for_help_is_understood(dpdemo, words, as_option):
    done, expected = dpdemo(*words), dpdemo(*as_option)
    assert (done.code, done.out) == (0, expected.out)


def test_a_lone_number_after_simulate_is_its_gpus(dpdemo):
    assert dpdemo("simulate", "8", "-q").out == dpdemo("simulate", "--gpus", "8", "-q").out


def test_the_case_of_a_choice_does_not_matter(dpdemo):
    done = dpdemo("simulate", "--strategy", "DDP", "--processes", "2", "--format", "CSV", "-q")
    assert (
        done.out == dpdemo("simulate", "--strategy", "ddp", "--processes", "2", "--format", "csv", "-q").out
    )
    assert done.code == 0
