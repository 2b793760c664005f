"""Run the tests of the command line with the lowest versions that pyproject.toml allows.

Usage: floors.py [TEST…] [--set NAME=VERSION]

They are installed in a folder of their own that comes first on the path. torch stays as it is: each of its
releases has an environment of its own (`releases.py`). `--set` tries another version.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FLOOR = re.compile(r"([A-Za-z0-9_.-]+)>=([\d.]+)$")


def floors() -> dict[str, str]:
    """Return the lowest version of each dependency, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = dict(_FLOOR.match(each).groups() for each in project["dependencies"])
    return {name: version for name, version in found.items() if name != "torch"}


def main() -> int:
    """Install the floors, and run the tests with them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests/cli"])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VERSION")
    options = parser.parse_args()
    wanted = floors() | dict(each.split("=") for each in options.set)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pins = [f"{name}=={version}" for name, version in wanted.items()]
        subprocess.run([*pip, "--target", folder, *pins], check=True)
        print("with", *pins, flush=True)
        path = os.pathsep.join([folder, str(ROOT)])
        environ = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-W", "ignore::DeprecationWarning"]
        return subprocess.run([*command, *options.tests], check=False, cwd=ROOT, env=environ).returncode


if __name__ == "__main__":
    sys.exit(main())
