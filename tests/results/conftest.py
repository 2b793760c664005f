"""Golden outputs: plain files in `golden/`, compared letter by letter.

After a change on purpose, renew them and look at the difference:

    DPDEMO_REGENERATE=1 python -m pytest tests/results && git diff tests/results/golden
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare text with a golden file."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("DPDEMO_REGENERATE"):
            path.write_text(text, encoding="utf-8", newline="\n")
        assert text == path.read_text(encoding="utf-8")

    return check
