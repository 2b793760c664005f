"""A warning names the program's line, whatever stands between it and PyTorch."""

import inspect
import subprocess
import sys
import warnings

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from dpdemo.virtual import virtual_gpus

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.usefixtures("gpus")
def test_a_warning_of_cpp_names_the_line_that_called_our_function():
    original = torch.ones(2, device="cuda:1")
    with warnings.catch_warnings(record=True) as caught:
        line = inspect.currentframe().f_lineno + 1
        torch.tensor(original)
    assert [(each.filename, each.lineno) for each in caught] == [(__file__, line)]


@pytest.mark.skipif(
    "`broadcast_buffers`" not in inspect.getsource(DistributedDataParallel.__init__),
    reason="an older release",
)
def test_a_warning_of_pytorchs_python_names_the_line_that_called_our_function(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
model = torch.nn.Linear(2, 2).cuda()
torch.nn.parallel.DistributedDataParallel(
    model, broadcast_buffers=False)
dist.destroy_process_group()
""",
        "utf-8",
    )
    command = [sys.executable, "-m", "dpdemo", "exec", "--ranks", "1", program.name]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "train.py:5: FutureWarning: `broadcast_buffers`" in ended.stderr
    assert "dpdemo/ranks" not in ended.stderr


def test_pythons_own_class_is_back_after_a_block():
    own = warnings.WarningMessage
    with virtual_gpus(1):
        assert own in warnings.WarningMessage.__bases__
    assert warnings.WarningMessage is own
