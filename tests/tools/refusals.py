"""List what virtual GPUs refuse, from the source and from each release: ``python refusals.py [PYTHON…]``.

Every public name of torch.cuda, torch.accelerator and torch.distributed is looked at under each
Python given (this one by default): a function that needs no argument is called, and answers or is refused by
name; classes that are refused are known from the patches. The refusals that depend on what a program passes
are read from the source. With `--write` the table in docs/virtual-gpus.md is renewed; with `--new A B` the
public names that release B (a Python) has beyond A are listed: ran, refused by name, or unknown.
"""

import argparse
import ast
import contextlib
import importlib
import inspect
import io
import json
import subprocess
import sys
import warnings
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "virtual-gpus.md"
BEGIN, END = "<!-- refusals: tests/tools/refusals.py --write -->", "<!-- end of refusals -->"
MODULES = (
    *("torch.cuda", "torch.cuda.memory", "torch.cuda.nccl", "torch.cuda.profiler", "torch.cuda.nvtx"),
    *("torch.cuda.random", "torch.cuda.graphs", "torch.cuda.streams", "torch.cuda.tunable", "torch.cuda.gds"),
    *("torch.backends.cuda", "torch.backends.cudnn", "torch.backends.cusparselt", "torch.accelerator"),
    *("torch.accelerator.memory", "torch.accelerator.random", "torch.accelerator.graphs"),
    *("torch.distributed", "torch.distributed.device_mesh"),
)
OF_OTHERS = {"list_gpu_processes", "tune_gemm_in_file", "mgpu_tune_gemm_in_file"}
"""They ask NVIDIA's own tools, or read files that are not there, on a machine with GPUs too."""
RAN, UNKNOWN = "ran", "unknown"


def looked_at() -> dict[str, str]:
    """Return what becomes of each public name of this release: a refusal begins with "refused"."""
    from dpdemo.virtual import UnsupportedOpError, virtual_gpus

    found: dict[str, str] = {}
    with virtual_gpus(2), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for module_name in MODULES:
            try:
                module = importlib.import_module(module_name)
            except ImportError:
                continue
            for public in sorted(getattr(module, "__all__", ()) or vars(module)):
                value = getattr(module, public, None)
                if public.startswith("_") or public in OF_OTHERS or not callable(value):
                    continue
                found[f"{module_name}.{public}"] = _tried(value, UnsupportedOpError)
    return found


def _tried(value: object, refusal: type[Exception]) -> str:
    if inspect.isclass(value):
        maker = vars(value).get("__init__") or vars(value).get("__new__")
        if getattr(getattr(maker, "__func__", maker), "__qualname__", "") != "_refusal.<locals>.refuse":
            return UNKNOWN
    elif not inspect.isfunction(value):
        return UNKNOWN
    else:
        parameters = inspect.signature(value).parameters.values()
        if any(each.default is each.empty and each.kind not in (2, 4) for each in parameters):
            return UNKNOWN
    try:
        value()
    except refusal as error:
        return f"refused: {str(error).partition(': ')[2].partition(';')[0]}"
    except Exception:
        return UNKNOWN  # it needs a process group, or has an error of PyTorch's
    return RAN


def in_source() -> dict[str, list[str]]:
    """Return the refusals of the source: by reason, the files; a blank stands for what a program passes."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "dpdemo" / "virtual").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                text = _text(node.args[0])
                if node.func.id == "refuse" and text:
                    text = f"{text}: each rank's virtual GPUs are memory of its own process"
                elif node.func.id != "UnsupportedOpError":
                    continue
                if ": " in text or " " in text.strip("…"):
                    reasons[text].append(str(path.relative_to(ROOT / "dpdemo" / "virtual")))
    return {text: sorted(set(files)) for text, files in reasons.items() if not text.startswith("…: …")}


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def asked(python: str) -> dict[str, object]:
    """Return what a Python's release refuses."""
    done = subprocess.run([python, __file__, "--json"], check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def table(releases: list[dict[str, object]]) -> list[str]:
    """Return the lines of the table in the docs."""
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for release in releases:
        for name, status in release["names"].items():
            if status.startswith("refused: "):
                reasons[status.removeprefix("refused: ")][name].append(release["torch"])
    lines = ["| what | torch | why |", "|---|---|---|"]
    for reason, names in sorted(reasons.items()):
        by_releases: dict[str, list[str]] = defaultdict(list)
        for name, present in sorted(names.items()):
            by_releases[", ".join(present)].append(f"`{name}`")
        lines += [f"| {', '.join(found)} | {present} | {reason} |" for present, found in by_releases.items()]
    every = ", ".join(str(release["torch"]) for release in releases)
    for text, files in sorted(in_source().items()):
        what, _, why = text.partition(": ")
        if what == "…":
            if not files[0].startswith("ops/"):
                continue  # the words of the rows above
            what = "an operator"
        where = ", ".join(f"`{file}`" for file in files)
        lines.append(f"| {what if why else 'a program'} ({where}) | {every} | {why or what} |")
    return lines


def written(page: str, lines: list[str]) -> str:
    """Return the page with the table renewed."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([before + BEGIN, *lines, END]) + after


def main() -> None:
    """Ask the releases, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", default=[sys.executable])
    parser.add_argument("--json", action="store_true", help="print this release's names (the program's own)")
    parser.add_argument("--write", action="store_true", help="renew the table in docs/virtual-gpus.md")
    parser.add_argument("--new", action="store_true", help="list names that only the last release has")
    options = parser.parse_args()
    if options.json:
        import torch

        version = ".".join(torch.__version__.split("+")[0].split(".")[:3])
        print(json.dumps({"torch": version, "names": looked_at()}))
        return
    releases = [asked(python) for python in options.pythons]
    if options.new:
        first, last = releases[0]["names"], releases[-1]["names"]
        for name in sorted(set(last) - set(first)):
            print(f"{name}: {last[name]}")
        return
    lines = table(releases)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(), lines))
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
