"""What kinds of GPU a virtual one can be."""

from __future__ import annotations

import pytest
import torch

from dpdemo.virtual import virtual_gpus


def test_an_unknown_card_is_an_error_that_names_the_argument() -> None:
    with pytest.raises(ValueError, match="`card`: expected a card such as"), virtual_gpus(1, card="abacus"):
        pass


def test_programs_see_the_card() -> None:
    with virtual_gpus(1, card="T4"):
        properties = torch.cuda.get_device_properties(0)
        assert properties.multi_processor_count == 40
        assert properties.max_threads_per_multi_processor == 1024
        assert torch.cuda.get_device_capability() == (7, 5)
        assert torch.cuda.get_device_name() == "Tesla T4"
        assert torch.cuda.mem_get_info()[1] == int(14.56 * 2**30)
        assert not torch.cuda.is_bf16_supported(including_emulation=False)
