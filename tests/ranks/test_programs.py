"""Programs with a mistake each, and their repaired twins, under `dpdemo exec --ranks 2`.

A program's docstring has the words that the report must have (`says: `, or `note: ` for a note) for the line
marked `# here`; where a line has `# right: …`, the twin has that instead, and nothing may be reported of it.
Several are run as one, to start ranks less often, but for those that say why they run `alone: `.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
_TEXTS = {path.stem: path.read_text("utf-8") for path in PROGRAMS.glob("*.py") if path.stem != "common"}
OF_LIBRARIES = sorted(name for name, text in _TEXTS.items() if "accelerate import" in text)
"""Run by `test_rank_libraries.py`, where the libraries are installed."""
NAMES = sorted(_TEXTS.keys() - OF_LIBRARIES)
_RIGHT = re.compile(r"( *).*  # (?:here; )?right: (.*)")
_STOPPED = {"skipped_by_one", "uneven_microbatches"}
_ALONE = [name for name in NAMES if re.search(r"^alone: ", _TEXTS[name], re.MULTILINE)]
_TOGETHER = [name for name in NAMES if name not in _ALONE]
GROUPS = [
    *([name] for name in _ALONE),
    *(_TOGETHER[first : first + 8] for first in range(0, len(_TOGETHER), 8)),
]
_ONE_BY_ONE = """
import runpy
import torch.distributed as dist

for name in {names}:
    runpy.run_path(name + ".py", run_name="__main__")
if dist.is_initialized():  # accelerate ends it itself
    dist.destroy_process_group()
"""


def repaired(text):
    """Return the text of the twin."""
    found = (_RIGHT.fullmatch(line) for line in text.splitlines())
    return "\n".join(
        match[1] + match[2] if match else line for match, line in zip(found, text.splitlines(), strict=True)
    )


def report_of(folder, texts):
    """Run programs one after another in the same ranks; return the exit code and the report."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    (folder / "train.py").write_text(_ONE_BY_ONE.format(names=list(texts)), "utf-8")
    (folder / "common.py").write_text((PROGRAMS / "common.py").read_text("utf-8"), "utf-8")
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "2", "--report", "report.json", "train.py"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=500)
    assert (folder / "report.json").exists(), done.stderr
    return done.returncode, json.loads((folder / "report.json").read_text("utf-8"))


def test_each_program_has_a_twin_and_a_line():
    for name, text in _TEXTS.items():
        assert repaired(text) != text.removesuffix("\n"), name
        assert re.search(r"^(says|note): ", text, re.MULTILINE), name
        assert len(re.findall(r"# here\b", text)) == 1, name


def are_named_with_their_lines(names, folder):
    code, report = report_of(folder, {name: _TEXTS[name] for name in names})
    assert code == (names[0] in _STOPPED), report["problem"]
    for name in names:
        text = _TEXTS[name]
        line = next(number for number, each in enumerate(text.splitlines(), 1) if "# here" in each)
        words = re.findall(r"^(?:says|note): (.*)$", text, re.MULTILINE)
        kind = "note" if re.search(r"^note: ", text, re.MULTILINE) else "mistake"
        found = [each for each in report["mistakes"] if all(word in each["text"] for word in words)]
        assert [(each["at"], each["kind"]) for each in found] == [(f"{name}.py:{line}", kind)], report


def nothing_is_reported_of_their_twins(names, folder):
    code, report = report_of(folder, {name: repaired(_TEXTS[name]) for name in names})
    assert (code, report["mistakes"], report["problem"]) == (0, [], [])


@pytest.mark.slow
@pytest.mark.parametrize("names", GROUPS, ids="-".join)
def test_the_mistake_of_a_program_is_named_with_its_line(names, tmp_path):
    are_named_with_their_lines(names, tmp_path)


@pytest.mark.slow
def test_nothing_is_reported_of_their_twins(tmp_path):
    nothing_is_reported_of_their_twins(NAMES, tmp_path)
