"""The moving picture at the top of the README: a session in a terminal, made from real output (`make docs`).

Line by line the session appears, again and again; where animation is off, or not wanted, all of it is there.
"""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "session.svg"
WIDTH = 84
FONT = "Menlo, 'DejaVu Sans Mono', 'Liberation Mono', Consolas, monospace"
SECONDS_TO_READ = 6
"""Time that a command's output stays before the next command is typed."""


SESSION = (
    "dpdemo simulate 8 --batch-size 30 --data-size 30",
    "dpdemo check model.py --gpus 4",
    "sed -i '/self.steps += 1/d' model.py   # count in the training loop instead",
    "dpdemo check model.py --gpus 4",
)


class Scene(NamedTuple):
    """A command as it is typed, and what it prints with colours."""

    command: str
    output: str


def printed(command: str, folder: Path) -> str:
    """Run a command in a folder as on a terminal with colours, and return what it prints."""
    environment = {
        **os.environ,
        "FORCE_COLOR": "1",
        "COLUMNS": str(WIDTH),
        "TERM": "xterm-256color",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    words = shlex.split(command)
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout.strip("\n")


def scenes() -> list[Scene]:
    """Run the session: a split, a model with a fault, its repair, and the check again."""
    source = (ROOT / "dpdemo" / "examples" / "counter.py").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.py").write_text(source)
        return [Scene(command, printed(command.partition("   #")[0], folder)) for command in SESSION]


def drawn(session: list[Scene]) -> str:
    """Return the session as an animated SVG."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    scene_of_line: list[int] = []
    for number, scene in enumerate(session):
        output = f"{scene.output}\n\n" if scene.output else "\n"
        text = Text.assemble(("$ ", "bold green"), (scene.command, "bold"), "\n", Text.from_ansi(output))
        lines = text.wrap(console, WIDTH)
        scene_of_line += [2 * number] + [2 * number + 1] * (len(lines) - 1)
        console.print(*lines, sep="\n")
    svg = console.export_svg(title="dpdemo", unique_id="session")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: (Fira Code|arial)[^;]*;", f"font-family: {FONT};", svg)
    svg = re.sub(r" ?<!-- .*? -->\n?", "", svg)

    def appearing(found: re.Match[str]) -> str:
        return f'<text class="s{scene_of_line[int(found[2])]} {found[1]}"'

    svg = re.sub(r'<text class="([^"]+)"(?=[^>]*clip-path="url\(#session-line-(\d+)\)")', appearing, svg)
    return svg.replace("<style>", f"<style>\n{animation(len(session))}", 1)


def animation(num_scenes: int) -> str:
    """Return the rules by which the lines of each scene appear, and all vanish before the next round."""
    length = (num_scenes + 1) * SECONDS_TO_READ
    rules = []
    for number in range(num_scenes):
        for part, delay in ((0, 0.0), (1, 1.0)):
            at = 100 * (number * SECONDS_TO_READ + delay) / length
            name = f"s{2 * number + part}"
            hidden = f"0%, {at:.2f}% {{ opacity: 0 }} " if at else ""
            rules.append(f"@keyframes {name} {{ {hidden}{at + 0.01:.2f}%, 100% {{ opacity: 1 }} }}")
            rules.append(f".{name} {{ animation: {name} {length}s step-end infinite }}")
    rules.append("@media (prefers-reduced-motion: reduce) { text { animation: none !important } }")
    return "\n".join(rules) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn(scenes()))
