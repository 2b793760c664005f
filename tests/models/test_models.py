"""The built-in models, against the catalogue that predicts their shapes."""

import pytest
import torch
from torch import nn

from dpdemo.config.catalogue import BLOCK, EMBEDDING, MODELS, VOCABULARY, batched
from dpdemo.config.load import make_config
from dpdemo.models.modules import Placement, build
from dpdemo.models.targets import find_model

CPU = torch.device("cpu")


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)


def make(**values):
    config = make_config(values)
    return config, build(config, Placement(Wrapper, CPU, CPU))


def sample_of(config, rows):
    shapes = MODELS[config.model]
    shape = batched(shapes.input(config.input_size, config.output_size), rows, config.dim)
    if shapes.reads_cpu_input:
        return torch.randint(0, VOCABULARY, shape)
    return torch.randn(shape, dtype=getattr(torch, config.dtype))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_a_model_has_the_shapes_that_the_catalogue_says(model, dim, dtype):
    config, built = make(model=model, dim=dim, dtype=dtype, input_size=6, output_size=4)
    inner = []
    built.split.register_forward_hook(lambda _, args, output: inner.append((args[0].shape, output.shape)))
    output = built.model(sample_of(config, 3))
    shapes = MODELS[model]
    assert output.shape == batched(shapes.output(6, 4), 3, dim)
    assert output.dtype == getattr(torch, dtype)
    assert inner == [
        (
            batched((shapes.inner_input or shapes.input)(6, 4), 3, dim),
            batched((shapes.inner_output or shapes.output)(6, 4), 3, dim),
        )
    ]


@pytest.mark.parametrize("model", MODELS)
def test_the_catalogue_names_the_submodule_that_is_wrapped(model):
    _, built = make(model=model)
    wrapped = built.model.get_submodule(MODELS[model].wrapped)
    assert wrapped is built.wrapper
    assert wrapped.module is built.split


@pytest.mark.parametrize("model", MODELS)
def test_the_batch_dimension_only_moves_where_the_rows_stand(model):
    config, first = make(model=model, dim=0)
    _, second = make(model=model, dim=1)
    x = sample_of(config, 4)
    torch.testing.assert_close(second.model(x.movedim(0, 1)), first.model(x).movedim(0, 1))


@pytest.mark.parametrize("model", MODELS)
def test_rows_do_not_touch_each_other_so_a_split_changes_no_number(model):
    config, built = make(model=model, dtype="float64")
    built.model.eval()  # BatchNorm is the one layer here that mixes rows, and only in training
    x = sample_of(config, 6)
    parts = torch.cat([built.model(part) for part in x.chunk(3)])
    torch.testing.assert_close(parts, built.model(x))


def test_the_weights_come_from_the_seed():
    def weights(seed):
        return make(seed=seed)[1].model.module.weight

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_building_leaves_the_global_generator_as_it_was():
    before = torch.get_rng_state()
    make(model="transformer")
    assert torch.equal(before, torch.get_rng_state())


def test_partial_and_hybrid_are_the_tutorials():
    _, partial = make(model="partial", input_size=10, output_size=20)
    sizes = [tuple(p.shape) for name, p in partial.model.named_parameters() if name.endswith("weight")]
    assert sizes == [(20, 10), (BLOCK, BLOCK), (20, 20)]
    _, hybrid = make(model="hybrid", output_size=10)
    assert hybrid.model.embedding.weight.shape == (VOCABULARY, EMBEDDING)
    assert hybrid.split.weight.shape == (10, 10)


@pytest.mark.parametrize("name", MODELS)
def test_every_builtin_model_is_built_without_a_wrapper_by_its_name(name):
    model = find_model(name)()
    assert isinstance(model, nn.Module)
    assert not any(isinstance(module, nn.DataParallel) for module in model.modules())
