"""README, docs/, `--help` and messages name only commands, options and functions that exist."""

import ast
import importlib.util
import re
from collections.abc import Iterator

import pytest
import typer
from readme import PAGES, ROOT

import dpdemo
from dpdemo.checking.registry import rules
from dpdemo.cli.app import COMMANDS, build, words_of
from dpdemo.config.targets import looks_like_script

TEXTS = {
    str(page.relative_to(ROOT)): page.read_text()
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
}
SOURCES = sorted((ROOT / "dpdemo").rglob("*.py"))
_GROUP = typer.main.get_command(build(COMMANDS))
OPTIONS = {
    name: {
        flag
        for param in _GROUP.get_command(None, name).params
        for flag in (*param.opts, *param.secondary_opts)
    }
    for name in COMMANDS
}
OF_OTHERS = {
    *("--help", "--version", "--install-completion"),  # of the program as a whole
    *("--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--master-port", "--standalone"),
    *("--virtual-gpus", "--full-trace", "--epochs", "--new"),  # pytest's, a user's script's, a tool's
}
_OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])")


def unknown_in(command: str) -> Iterator[str]:
    """Yield a command that does not exist, or the options that it does not have."""
    typed = re.split(r"\s(?:[|#]|&&|2?>)|[;)]", command)[0].replace("'", "").split()[1:]
    name, *words = words_of(typed) or ["--help"]
    if name not in COMMANDS:
        yield from [] if name in OF_OTHERS | {"COMMAND", "TARGET"} else [name]
        return
    for word in words:
        if name in {"exec", "doctor"} and (looks_like_script(word) or word in {"-m", "--"}):
            return  # the rest are the program's own words
        flag = word.partition("=")[0]
        if re.match(r"--?[a-zA-Z]", word) and flag not in OPTIONS[name] | {"-h", "--help"}:
            yield f"{name} {flag}"


def test_a_name_that_does_not_exist_is_found():
    assert [*unknown_in("dpdemo split --gpus 2")] == ["split"]
    assert [*unknown_in("dpdemo simulate 2 --batch-sice 3 | head --lines 2")] == ["simulate --batch-sice"]
    assert [*unknown_in("dpdemo exec --gpus 2 train.py --epochs 1")] == []
    assert [*unknown_in("dpdemo model.py:Net --list")] == ["doctor --list"]


@pytest.mark.parametrize("page", TEXTS)
def test_the_commands_of_a_page_exist_with_their_options(page):
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", TEXTS[page], re.DOTALL | re.MULTILINE))
    commands = re.findall(r"`(dpdemo [^`\n]+)`", TEXTS[page])
    commands += re.findall(r"(?:^|\$ |&& |run: )(dpdemo [^\n]+)", blocks, re.MULTILINE)
    assert [name for command in commands for name in unknown_in(command)] == []


def test_the_readmes_table_has_every_command():
    table = TEXTS["README.md"].partition("| command | what it shows |\n")[2].partition("\n\n")[0]
    named = [name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(named) == sorted(COMMANDS)


@pytest.mark.parametrize("page", TEXTS)
def test_the_options_that_a_page_names_exist(page):
    spans = " ".join(re.findall(r"`(--[^`\n]+)`", TEXTS[page]))
    assert {*_OPTION.findall(spans)} <= OF_OTHERS.union(*OPTIONS.values())


@pytest.mark.parametrize("page", TEXTS)
def test_the_rules_that_a_page_names_exist_and_are_as_many(page):
    assert {*re.findall(r"\bDP\d{3}\b", TEXTS[page])} <= {known.code for known in rules()}
    assert {*re.findall(r"(\d+) \[?rules\b", TEXTS[page])} <= {str(len(rules()))}


@pytest.mark.parametrize("page", TEXTS)
def test_the_python_names_of_a_page_exist(page):
    for name in re.findall(r"(?<![\w./])dpdemo\.(?!yaml)(\w+)(?=[(`.:])", TEXTS[page]):
        is_module = importlib.util.find_spec(f"dpdemo.{name}") is not None
        assert is_module or hasattr(dpdemo, name), name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_options_that_help_and_messages_name_exist(path):
    texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    named = {flag for text in texts if isinstance(text, str) for flag in _OPTION.findall(text)}
    assert named <= OF_OTHERS.union(*OPTIONS.values())
