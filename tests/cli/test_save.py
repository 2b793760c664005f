"""`--save` of each command: the format follows the ending; a wrong ending is refused before anything runs."""

import pytest
from processes import needs_no_gpu

COMMANDS = [
    "simulate --gpus 3",
    "sweep --gpus 1-4 --batch-size 1-8",
    "run",
    pytest.param("explain --virtual --gpus 2", marks=needs_no_gpu),
]
STARTS = {".svg": "<svg", ".html": "<!", ".json": "{", ".csv": "", ".md": "", ".txt": ""}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_is_saved_by_its_ending(dpdemo, tmp_path, command):
    paths = [tmp_path / f"report{ending}" for ending in STARTS]
    done = dpdemo(*command.split(), *(word for path in paths for word in ("--save", path)))
    assert done.code == 0
    for path, start in zip(paths, STARTS.values(), strict=True):
        assert f"saved to {path}" in done.err
        assert path.read_text().startswith(start)
        assert path.stat().st_size > 100


@pytest.mark.parametrize("command", [*COMMANDS, "check linear", "memory linear --gpus 2", "doctor linear"])
def test_a_wrong_ending_is_refused_before_anything_runs(dpdemo, command):
    done = dpdemo(*command.split(), "--save", "report.pdf")
    assert (done.code, done.out) == (2, "")
    assert "expected a file ending in .svg, .html, .txt, .json, .csv" in done.err
    assert "report.pdf" in done.err
