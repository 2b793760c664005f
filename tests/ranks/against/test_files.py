"""The run on one rank has a view of its own of files that the ranks have written."""

import json
import subprocess
import sys
from pathlib import Path

VIEW = Path(__file__).parent / "programs" / "view.py"


def test_only_what_the_ranks_wrote_over_and_it_reads_stands_in_the_way(tmp_path):
    texts = {"train.log": "the ranks'", "old.pt": "", "new.pt": "", "data.txt": "data", "metrics.csv": "step"}
    before = {name: text for name, text in texts.items() if name != "new.pt"}
    for name, text in before.items():
        (tmp_path / name).write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, str(VIEW), str(tmp_path)], capture_output=True, text=True, timeout=100, check=True
    )
    assert json.loads(done.stdout) == {
        "old.pt is there": True,
        "new.pt is there": False,
        "saved": [1.0],
        "data": "data",
        "data with more": "data and more",
        "remarks before": [],
        "remarks": ["train.log", "metrics.csv"],
    }
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir() if path.is_file()} == before
