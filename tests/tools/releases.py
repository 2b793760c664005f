"""Run the fast suite on each release of PyTorch that dpdemo is tested on: ``python releases.py [RELEASE…]``.

Each release of `TESTED` (dpdemo/virtual/errors.py), or those named, gets an environment of its own in a
folder that is kept (`--folder`), with pip's newest patch and the development tools. It prints a table
for CONTRIBUTING.md, and the exit code is 1 if a test failed. `--only PATH…` runs a part of the suite.
"""

import argparse
import datetime as dt
import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from dpdemo.virtual.errors import TESTED

ROOT = Path(__file__).parents[2]
_SUMMARY = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def environment(folder: Path, release: str) -> Path:
    """Return the Python of a release's environment, which is made the first time."""
    place = folder / f"torch-{release}"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"torch=={release}.*"], check=True)
        subprocess.run([*pip, "--editable", f"{ROOT}[dev]"], check=True)
    return python


def ran(python: Path, parts: list[str]) -> tuple[str, dict[str, int]]:
    """Run the fast suite, and return the release's full number and how many tests had each end."""
    ask = "import torch, platform; print(torch.__version__, platform.python_version())"
    version = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    command = [str(python), "-m", "pytest", "-q", "-n", "auto", "--maxprocesses", "8", *parts]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=environ)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    counts = {kind.rstrip("s"): int(number) for number, kind in _SUMMARY.findall(last)}
    if done.returncode and not counts.get("failed"):
        counts["error"] = counts.get("error", 0) or 1
    print(*[line for line in done.stdout.splitlines() if line.startswith("FAILED")], sep="\n", end="")
    return version, counts


def table(rows: list[tuple[str, dict[str, int]]]) -> str:
    """Return the results as CONTRIBUTING.md shows them."""
    today = dt.datetime.now(tz=dt.UTC).date()
    lines = [f"| torch, Python | passed | failed | skipped | {today:%-d %B %Y} |", "|---|---|---|---|---|"]
    for version, counts in rows:
        failed = counts.get("failed", 0) + counts.get("error", 0)
        verdict = "passes" if not failed else "**fails**"
        lines.append(
            f"| {version} | {counts.get('passed', 0)} | {failed} | {counts.get('skipped', 0)} | {verdict} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the releases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", default=list(TESTED))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dpdemo-releases")
    parser.add_argument("--python", type=Path, help="run this environment alone, which has everything")
    parser.add_argument("--only", nargs="*", default=[], help="the tests to run, instead of all fast ones")
    options = parser.parse_args()
    pythons = (
        [options.python]
        if options.python
        else [environment(options.folder, release) for release in options.releases]
    )
    rows = [ran(python, options.only) for python in pythons]
    print(table(rows))
    return int(any(counts.get("failed") or counts.get("error") for _, counts in rows))


if __name__ == "__main__":
    sys.exit(main())
