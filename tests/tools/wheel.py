"""The package as its users get it: built, looked into, installed alone, and the README run there.

The environment is a new one whose packages are links to those that the wheel asks for, and to what they ask
for: torch is not downloaded again, and the packages of the development extra are missing (numpy too).
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from readme import ROOT, Shown, comparable, shown

IN_WHEEL = ("dpdemo/py.typed", "dpdemo/examples/pitfall.py", "dpdemo/page/page.html")
IN_SDIST = ("README.md", "LICENSE", "CHANGELOG.md", "Makefile", "docs/reference.md", "tests/tools/wheel.py")
MORE = (
    "dpdemo --version",
    "dpdemo init",
    "dpdemo run --virtual --config dpdemo.yaml",
    "dpdemo page --save page.html",
)
"""Commands that the README names without showing what they print."""
IMPORTS = """
import importlib, pkgutil, dpdemo
for module in pkgutil.walk_packages(dpdemo.__path__, "dpdemo."):
    if module.name not in ("dpdemo.__main__", "dpdemo.pytest_plugin"):
        importlib.import_module(module.name)
print(dpdemo.simulate(gpus=8, batch_size=65).sample_weight)
"""


def build(folder: Path) -> tuple[Path, Path]:
    """Build both, and give the wheel and the sdist."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def lacking(wheel: Path, sdist: Path) -> list[str]:
    """Name what is in the repository and should be in them, and what is in them and should not be."""
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "dpdemo").rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    configs = {str(path.relative_to(ROOT)) for path in (ROOT / "configs").glob("*.yaml")}
    found = [f"the wheel lacks {name}" for name in sorted({*IN_WHEEL, *ours} - in_wheel)]
    found += [f"the sdist lacks {name}" for name in sorted({*IN_SDIST, *ours, *configs} - in_sdist)]
    strange = [name for name in in_wheel | in_sdist if "__pycache__" in name or name.endswith(".pyc")]
    return found + [f"{name} is nobody's business" for name in strange]


def required(wheel: Path) -> list[metadata.Distribution]:
    """Find the distributions that the wheel asks for, and what those ask for, among those installed here."""
    text = zipfile.ZipFile(wheel).read(f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/METADATA").decode()
    found: dict[str, metadata.Distribution] = {}
    names = list(_names(re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)))
    while names:
        name = names.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another platform
            continue
        names += _names(found[name].requires or [])
    return list(found.values())


def _names(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if "extra ==" not in line:
            yield re.split(r"[^A-Za-z0-9._-]", line)[0].lower()


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment that has the wheel and what it asks for, and give the folder of its programs."""
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for distribution in required(wheel):
        tops = {
            path.parts[0] for path in distribution.files or () if path.parts[0] not in {"..", "__pycache__"}
        }
        for top in tops:
            (packages / top).symlink_to(distribution.locate_file(top))
    python = folder / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run([*pip, "--disable-pip-version-check"], check=True)
    return python.parent


def failures(programs: Path, folder: Path) -> Iterator[str]:
    """Run the README's commands in an empty folder, and give what does not show what it should."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PATH": f"{programs}{os.pathsep}{env['PATH']}", "PYTHONUNBUFFERED": "1"}
    env["PYTHONWARNINGS"] = "ignore:Failed to initialize NumPy:UserWarning"  # torch's own, in the ranks
    env.pop("COLUMNS", None)

    (packages,) = programs.parent.glob("lib/python*/site-packages")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(words, cwd=folder, env=env, text=True, check=False, **streams)

    imported = run("python", "-W", "ignore", "-c", IMPORTS)
    if imported.stdout != "4.0625\n":
        yield f"import\n{imported.stdout}"
    for each in (*shown((ROOT / "README.md").read_text()), *(Shown(command, "") for command in MORE)):
        done = run("bash", "-c", f"set -o pipefail; {each.command}")
        printed = comparable(done.stdout.replace(f"{packages}/", ""))  # its own files are named from here
        is_shown = not each.output or printed == comparable(each.output)
        if not is_shown or "Traceback" in done.stdout or (done.returncode and not each.output):
            yield f"$ {each.command}\n{done.stdout}"
        print(".", end="", flush=True)


def main() -> int:
    """Build, look, install and run; give the exit code."""
    with tempfile.TemporaryDirectory(prefix="dpdemo wheel ") as text:
        folder = Path(text)
        wheel, sdist = build(folder / "dist")
        found = lacking(wheel, sdist)
        programs = install(wheel, folder / "environment")
        (folder / "empty").mkdir()
        found += failures(programs, folder / "empty")
    print(
        "\n"
        + ("\n".join(found) or "the wheel and the sdist are whole, and the README runs from an empty folder")
    )
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main())
