"""The README and the pages of docs/: each command does what it shows."""

import re

import pytest
from readme import PAGES, ROOT, comparable, run, shown
from torch import nn

import dpdemo

TEXTS = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}


def found(pattern):
    """Each page's name with what a pattern finds in it."""
    return [
        (page, each)
        for page, text in TEXTS.items()
        for each in re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    ]


COMMANDS = [(page, each) for page, text in TEXTS.items() for each in shown(text)]


def takes_long(page, each):
    return page != "README.md" or "exec" in each.command  # a process for each rank


def test_there_are_commands_in_the_readme_and_in_the_docs():
    assert len({page for page, _ in COMMANDS}) >= 2
    assert sum(page == "README.md" for page, _ in COMMANDS) >= 2


@pytest.mark.parametrize(
    ("page", "each"),
    [pytest.param(*case, marks=pytest.mark.slow if takes_long(*case) else ()) for case in COMMANDS],
    ids=[f"{page}: {each.command}" for page, each in COMMANDS],
)
def test_commands_print_the_output_of_the_page(page, each):
    assert comparable(run(each.command)) == comparable(each.output), f"{page}: renew it with `make docs`"


def test_only_the_figure_of_round_off_and_the_release_of_pytorch_may_be_others():
    assert comparable("virtual cuda:0–1, torch 2.13.0+cpu\n") == comparable(
        "virtual cuda:0–1, torch 2.15.0\n"
    )
    said = "equal to module(input) on cuda:0 to round-off: {} apart at most\n"
    assert comparable(said.format("1.19e-07")) == comparable(said.format("0"))
    for other in (said.replace("cuda:0", "cuda:1"), "equal to module(input) on cuda:0, bit for bit\n"):
        assert comparable(other.format("0")) != comparable(said.format("0"))


@pytest.mark.parametrize(("page", "target"), sorted(set(found(r"(?:^|`)make ([a-z-]+)"))))
def test_named_make_targets_exist(page, target):
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page} names it"


@pytest.mark.parametrize(("page", "code"), found(r"^```python\n(.*?)^```$"))
def test_the_python_code_runs(page, code, capsys):
    exec(compile(code, page, "exec"), {})  # noqa: S102 - our own pages
    printed = capsys.readouterr().out.splitlines()
    assert set(re.findall(r"print\(.*\)  # ([\d. ]*\d)", code)) <= set(printed)


def test_readmes_model_has_the_shown_pitfall():
    (code,) = re.findall(r"^```py\n(.*?)^```$", TEXTS["README.md"], re.DOTALL | re.MULTILINE)
    namespace = {"nn": nn}
    exec(compile(code, "README.md", "exec"), namespace)  # noqa: S102 - our own page
    assert "DP301" in {finding.code for finding in dpdemo.check(namespace["Net"](), gpus=4).findings}


@pytest.mark.parametrize(("page", "path"), found(r"\]\((?!http)([^)#]+)"))
def test_linked_files_exist(page, path):
    assert ((ROOT / page).parent / path).exists()
