"""The line that multiplies a loss by the number of ranks."""

import pytest

from dpdemo.ranks.against.library import where_scaled


@pytest.mark.parametrize(
    "line",
    [
        "        loss *= self.accelerator.num_processes",
        "loss = loss * world_size",
        "        self.loss *= self.world_size",
    ],
)
def test_the_line_is_found(tmp_path, line):
    file = tmp_path / "trainer.py"
    file.write_text(f"# loss * world_size\n{line}\n")
    assert where_scaled([f"{file}:40"]).endswith("trainer.py:2")
    library = tmp_path / "site-packages" / "trainer.py"
    library.parent.mkdir()
    library.write_text(file.read_text())
    assert where_scaled([f"{library}:40"]) == "trainer.py:2 (a library's line, not your program's)"


def test_files_without_such_a_line_are_silent(tmp_path):
    (tmp_path / "train.py").write_text("total = loss * 2\n")
    assert where_scaled([f"{tmp_path / 'train.py'}:1", f"{tmp_path / 'gone.py'}:1"]) == ""
