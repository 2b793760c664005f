"""The README: each command does what it shows."""

import re

import pytest
from readme import README, ROOT, run, shown

TEXT = README.read_text()


def test_there_are_commands_in_the_readme():
    assert len(shown(TEXT)) >= 2


@pytest.mark.parametrize("each", shown(TEXT), ids=lambda each: each.command)
def test_a_command_prints_what_the_readme_shows(each):
    assert run(each.command) == each.output


@pytest.mark.parametrize("target", sorted(set(re.findall(r"make ([a-z-]+)", TEXT))))
def test_a_make_target_that_is_named_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
def test_the_python_code_runs(code, capsys):
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own README
    for value in re.findall(r"print\(.*\)  # ([\d.]+)", code):
        assert value in capsys.readouterr().out


@pytest.mark.parametrize("path", re.findall(r"\]\((?!http)([^)#]+)", TEXT))
def test_a_file_that_is_linked_exists(path):
    assert (ROOT / path).exists()
