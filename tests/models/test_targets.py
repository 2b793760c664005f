"""Models by the name of a target."""

import pytest
from torch import nn

from dpdemo.config.catalogue import MODELS
from dpdemo.models.targets import find_model


@pytest.mark.parametrize("name", MODELS)
def test_every_builtin_model_is_built_without_a_wrapper_by_its_name(name):
    model = find_model(name)()
    assert isinstance(model, nn.Module)
    assert not any(isinstance(module, nn.DataParallel) for module in model.modules())
