"""Console blocks of README.md and docs/: run as written, the output compared or (`make docs`) renewed."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # a program of its own finds what the tests share
import processes  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """A command as a page writes it, and the output that it shows below."""

    command: str
    output: str


def shown(text: str) -> list[Shown]:
    """All `$ dpdemo …` commands of a text; those of make are the reader's own."""
    found = []
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(command.partition("#")[0].strip(), output))
    return [each for each in found if each.command.startswith("dpdemo ")]


def run(command: str) -> str:
    """Run a command as written, in the repository's root, and give what a terminal would show."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}  # stdout and stderr in the order of writing
    env.pop("COLUMNS", None)
    done = processes.run(["bash", "-c", f"exec 2>&1; {command}"], cwd=ROOT, env=env)
    return done.stdout


def comparable(output: str) -> str:
    """An output without what is every machine's own: the figure of round-off, and the release of PyTorch."""
    output = re.sub(r"(?<=to round-off: )\S+(?= apart at most$)", "…", output, flags=re.MULTILINE)
    return re.sub(r"\btorch \d+\.\d+\.\S+", "torch …", output)


def written_anew(text: str) -> str:
    """The text with the real output below each command."""
    for each in shown(text):
        real = run(each.command)
        if comparable(real) != comparable(each.output):
            text = text.replace(f"$ {each.command}\n{each.output}", f"$ {each.command}\n{real}")
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written_anew(page.read_text()))
