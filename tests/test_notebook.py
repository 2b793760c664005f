"""docs/split.ipynb does what it shows, in a kernel of its own."""

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed: `make test` brings it")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: `make test` brings it")

from notebook import NOTEBOOK, executed, nbformat, outputs


@pytest.mark.slow
def test_notebook_shows_current_outputs():
    shown = outputs(nbformat.read(NOTEBOOK, as_version=4))
    assert len(shown) >= 6
    assert outputs(executed()) == shown, "renew it with `make docs`"
