"""`dpdemo init`: a config and a model to start from."""

from errno import ENOTDIR
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from dpdemo.cli import options as o
from dpdemo.cli.edge import print_hint
from dpdemo.errors import UsageError
from dpdemo.files import replacing

EXAMPLES = ("init", "init experiments", "init -q")


def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write them.")] = Path(),
    quiet: o.Quiet = False,
) -> None:
    """Write a commented config and a model to start from: dpdemo.yaml and model.py.

    Existing files are not touched.
    """
    from importlib.resources import files

    from dpdemo.config.fields import starter_config

    texts = {
        "dpdemo.yaml": starter_config(),
        "model.py": (files("dpdemo") / "examples" / "first.py").read_text(encoding="utf-8"),
    }
    try:
        if folder.suffix in {".yaml", ".yml", ".py"} and not folder.is_dir():
            raise NotADirectoryError(ENOTDIR, "the name of a file")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"expected a folder, or a place for one, got '{folder}' ({error.strerror})",
            key="folder",
            hint=f"name a folder, as in `dpdemo init {quote(str(folder.with_suffix('')))}`",
        ) from None
    there = [name for name in texts if (folder / name).exists()]
    if there:
        raise UsageError(
            f"expected a folder without {' and '.join(texts)}, got {' and '.join(there)} there",
            key="folder",
            hint="name another folder, or move the file away",
        )
    config, model = (folder / name for name in texts)
    for path, text in zip((config, model), texts.values(), strict=True):
        with replacing(path) as file:
            file.write(text)
    if not quiet:
        run = f"dpdemo run --virtual --config {quote(str(config))}"
        print_hint(f"wrote {config} and {model}; try `{run}` or `dpdemo {quote(str(model))}`")
