"""The help: panels, defaults, examples that are right, and what the Tab key offers."""

import pytest
from rich.text import Text

from dpdemo.cli import completion
from dpdemo.cli.group import COMMANDS, FIRST, GROUPS, app
from dpdemo.cli.help import _PANEL_OF, EXAMPLES, METAVARS, Command
from dpdemo.cli.helpscreen import drawn


@pytest.fixture(scope="module")
def root():
    import typer

    return typer.main.get_command(app)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_has_a_panel_and_says_what_it_takes(root, name):
    command = root.get_command(None, name)
    assert isinstance(command, Command)
    for option in (param for param in command.params if param.param_type_name == "option"):
        assert option.name in _PANEL_OF, option.name
        assert option.help
        assert option.is_flag or option.metavar or option.type_descriptor.is_choice, option.name


def test_no_table_of_the_help_names_an_option_that_there_is_not(root):
    known = {param.name for name in COMMANDS for param in root.get_command(None, name).params}
    assert not ({*_PANEL_OF} | {*METAVARS}) - known


def test_every_command_stands_in_one_group():
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_three_examples_whose_options_it_knows(root, dpdemo, name):
    assert len(EXAMPLES[name]) == 3
    said = dpdemo(name, "--help").out
    for example in EXAMPLES[name]:
        assert f"  dpdemo {example}\n" in said
        first, *words = example.split()
        if first not in COMMANDS:  # `dpdemo train.py` is doctor's
            first, words = "doctor", [first, *words]
        assert first == name
        root.get_command(None, name).make_context(name, words)


def test_the_examples_of_the_program_are_commands_or_targets(dpdemo):
    said = dpdemo("--help").out
    assert all(f"  dpdemo {example}\n" in said for example in FIRST)


def test_a_default_is_said_where_an_option_may_come_from_a_file(dpdemo):
    said = " ".join(dpdemo("simulate", "--help").out.split())
    assert "Samples in one epoch. [default: 100]" in said
    assert "Leave out a last batch that is not full. [default: no-drop-last]" in said


def test_help_keeps_to_a_narrow_terminal_but_for_what_cannot_be_broken(dpdemo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    for command in ([], ["simulate"], ["exec"]):
        lines = dpdemo(*command, "--help").out.splitlines()
        prose = [line for line in lines if not line.lstrip().startswith(("-", "dpdemo "))]
        assert len(prose) > 20
        assert [line for line in prose if len(line) > 40] == []


def test_on_a_terminal_each_panel_is_framed_and_a_users_brackets_stay(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    page = drawn([("Data", [("--input SPEC", "[NAME=]SHAPE[:TYPE] once. [default: 4]")])], ["check model.py"])
    letters = Text.from_ansi(page).plain.splitlines()
    assert letters[0].startswith("╭─ Data ──")
    assert {len(line) for line in letters[:3]} == {60}
    assert "[NAME=]SHAPE[:TYPE] once." in page
    assert "check model.py" in page


@pytest.mark.parametrize(
    ("offer", "typed", "offered"),
    [
        (completion.models, "", "transformer"),
        (completion.rules, "", "DP301"),
        (completion.rules, "DP2,DP30", "DP2,DP301"),
        (completion.kinds, "idle,", "idle,uneven"),
        (completion.cards, "", "A100-80GB"),
        (completion.links, "", "nvlink3"),
        (completion.losses, "", "cross-entropy"),
    ],
)
def test_the_tab_key_offers_what_an_option_takes(offer, typed, offered):
    assert offered in dict(offer(typed))


def test_the_tab_key_offers_files_and_the_classes_in_one_without_running_it(tmp_path):
    path = tmp_path / "own model.py"
    path.write_text("raise SystemExit\nclass Net: ...\ndef factory(): ...\nhidden = 1\n")
    (tmp_path / "broken.py").write_text("class")
    assert [word for word, _ in completion.models(f"{tmp_path}/o") if "own" in word] == [str(path)]
    assert [word for word, _ in completion.models(f"{path}:")] == [f"{path}:Net", f"{path}:factory"]
    assert completion.models(f"{tmp_path}/broken.py:") == []
    assert completion.models(f"{tmp_path}/none.py:") == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("check --select DP20", "DP205"), ("simulate --strategy ", "ddp"), ("sp", "speedup")],
)
def test_a_shell_is_told_what_there_is(program, typed, offered):
    words = f"dpdemo {typed}"
    place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    assert offered in program(_DPDEMO_COMPLETE="complete_bash", **place).out.split()
