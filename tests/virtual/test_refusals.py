"""The docs' table of what virtual GPUs refuse is that of the source and of the installed release."""

import pytest
import refusals
import torch

TABLE = refusals.PAGE.read_text().partition(refusals.BEGIN)[2].partition(refusals.END)[0]
RELEASE = torch.__version__.partition("+")[0]


def test_the_table_has_each_refusal_of_the_source():
    for text, files in refusals.in_source().items():
        if text.startswith("…") and not files[0].startswith("ops/"):
            continue
        reason = text.partition(": ")[2] or text
        assert any(reason in line and files[0] in line for line in TABLE.splitlines()), text


@pytest.mark.skipif(RELEASE not in TABLE, reason="the table was made with other releases")
def test_the_table_has_each_public_name_that_this_release_refuses():
    names = refusals.looked_at()
    refused = {name for name, status in names.items() if status.startswith("refused")}
    lines = [line for line in TABLE.splitlines() if RELEASE in line]
    assert refused == {name for name in names if any(f"`{name}`" in line for line in lines)}
    assert "torch.cuda.CUDAGraph" in refused
