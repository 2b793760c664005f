"""The pictures of README and docs: made by the program (`make docs`), compared with what it makes now."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES = {
    "docs/pictures/speedup.svg": (
        "speedup --parameters 124M --outputs 98MB --link nvlink-3090 --gpus 2,4 --one-gpu-step 49ms"
    ),
}


def make(command: str, path: Path) -> None:
    """Save a command's picture."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "dpdemo", *shlex.split(command), "--quiet", "--save", str(path)]
    subprocess.run(words, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    for name, command in PICTURES.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        make(command, ROOT / name)
