"""The program as a whole: its commands, its help, its version."""

import importlib
from pathlib import Path

import pytest
import typer
from processes import loaded_by

import dpdemo as package
from dpdemo.cli.app import COMMANDS, build, words_of
from dpdemo.config.fields import Config

ROOT = Path(package.__file__).parent.parent


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_summary_panels_and_valid_examples(dpdemo, name):
    done = dpdemo(name, "--help")
    assert done.code == 0
    assert COMMANDS[name][1] in " ".join(done.out.split())
    examples = importlib.import_module(f"dpdemo.cli.{name}").EXAMPLES
    assert len(examples) == 3
    command = typer.main.get_command(build([name])).get_command(None, name)
    for example in examples:
        assert f"dpdemo {example}" in " ".join(done.out.split())
        typed, *words = words_of(example.split())
        assert typed == name
        command.make_context(name, words)
    for option in command.params:
        assert option.help, option.name
        if option.param_type_name == "option" and option.name != "help":
            assert option.rich_help_panel, option.name


def test_every_command_module_is_in_the_table():
    files = {path.stem for path in (ROOT / "dpdemo/cli").glob("*.py")}
    modules = {name: importlib.import_module(f"dpdemo.cli.{name}") for name in files - {"__init__"}}
    assert {name for name, module in modules.items() if hasattr(module, "command")} == {*COMMANDS}


@pytest.mark.parametrize(
    ("key", "value"), Config(seed=3, dtype="float64", shuffle=True, dim=1).to_dict().items()
)
def test_set_sets_every_key_as_a_file_does(dpdemo, tmp_path, key, value):
    text = "8" if value is None else str(value).lower()
    (tmp_path / "one.yaml").write_text(f"{key}: {text}")
    by_file = dpdemo("simulate", "-f", "json", "--config", tmp_path / "one.yaml")
    by_option = dpdemo("simulate", "-f", "json", "--set", f"{key}={text}")
    assert (by_option.code, by_option.out) == (by_file.code, by_file.out)


@pytest.mark.parametrize(
    "command", ["simulate", "run --virtual", "explain --virtual", "memory", "page --save p.html"]
)
def test_set_is_an_option_of_each_command_with_a_config(dpdemo, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = dpdemo(*command.split(), "--gpus", "2", "--set", "seed=-1")
    assert (done.code, done.out) == (2, "")
    assert "expected a whole number of 0 or more, got -1 - at option `--set seed`" in done.err


@pytest.mark.parametrize(
    ("words", "place", "hint"),
    [
        ("--set batch_size=x", "option `--set batch_size`", "`--set batch_size=30`"),
        ("--set gpus=0", "option `--set gpus`", "write `--set gpus=0,`; leave `--set gpus` out"),
        ("--set drop-last=yes", "option `--set drop_last`", "`--set drop_last=true`"),
        ("--set data_size=3 --drop-last", "option `--drop-last`", "leave --drop-last out"),
    ],
)
def test_an_error_in_set_names_set_and_not_the_keys_own_option(dpdemo, words, place, hint):
    done = dpdemo("simulate", *words.split())
    assert (done.code, done.out) == (2, "")
    assert f" - at {place}\n" in done.err
    assert hint in done.err.partition("\nhint: ")[2]


def test_set_takes_lists_as_the_options_do(dpdemo):
    by_set = dpdemo("simulate", "-f", "json", "--set", "gpus=0,2")
    assert by_set.out == dpdemo("simulate", "-f", "json", "--gpus", "0,2").out


def test_the_version_is_the_packages(dpdemo):
    assert dpdemo("--version").out == f"dpdemo {package.__version__}\n"


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
def test_other_spellings_of_help_work(dpdemo, words, as_option):
    done, expected = dpdemo(*words), dpdemo(*as_option)
    assert (done.code, done.out) == (0, expected.out)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--help", 0),
        ("simulate --help", 0),
        ("simulate --gpus 8", 0),
        ("page", 0),
        ("check --list", 0),
        ("check --explain DP301", 0),
        ("speedup --gpus 2 --link pcie9", 2),
        ("memory", 2),
        ("memory --gpus 4 --gpu-memory lots", 2),
        ("memory --gpus 4 --input x", 2),
        ("memory --gpus 4 --loss none", 2),
        ("exec --gpus 2 no/such.py", 2),
    ],
)
def test_lines_that_run_no_model_load_neither_torch_nor_rich(line, code):
    assert loaded_by(*line.split()) == [str(code)]


def test_a_line_that_runs_a_model_loads_torch():
    assert "torch" in loaded_by("explain", "--virtual")
