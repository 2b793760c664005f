import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Waking a second core for a few hundred numbers gains nothing, and waits for whoever has it."""
    torch.set_num_threads(1)
