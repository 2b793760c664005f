"""docs/split.ipynb: its cells are run in a kernel of their own, and the outputs renewed by `make docs`."""

import asyncio
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "split.ipynb"


def executed() -> Any:
    """Run the notebook, and give it with what its cells showed."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    client = NotebookClient(notebook, timeout=300, resources=resources, record_timing=False)
    return asyncio.run(client.async_execute())


def outputs(notebook: Any) -> list[str]:
    """List the text of what each cell showed."""
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.get("text") or output.data["text/plain"] for output in shown]


def renew() -> None:
    """Write the notebook with what its cells show now, and nothing that is another the next time."""
    notebook = executed()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    renew()
