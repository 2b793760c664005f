"""Genuine `nn.DataParallel` on virtual GPUs does what PyTorch documents, in its words.

`tests/tools/fuzz/dataparallel.py` holds random programs against the same chunks done by hand on the CPU.
"""

import copy
import functools

import pytest
import torch
from torch import nn

from dpdemo.virtual import virtual_gpus

DIM = 6


@pytest.mark.parametrize("make", [functools.partial(torch.optim.SGD, momentum=0.9), torch.optim.AdamW])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("options", [{}, {"foreach": False}])
def test_optimizers_built_before_and_after_the_move_train_alike(make, early, options):
    layers = nn.Linear(DIM, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)
    model = nn.Sequential(*layers).double()
    batches = [torch.randn(7, DIM, dtype=torch.float64) for _ in range(3)]
    alone = copy.deepcopy(model)
    reference = make(alone.parameters(), lr=0.1, **options)
    with virtual_gpus(1):
        optimizer = make(model.parameters(), lr=0.1, **options) if early else None
        parallel = nn.DataParallel(model.cuda(), device_ids=[0])
        optimizer = optimizer or make(parallel.parameters(), lr=0.1, **options)
        for batch in batches:
            for net, steps in ((alone, reference), (parallel, optimizer)):
                steps.zero_grad()
                net(batch).pow(2).mean().backward()
                steps.step()
        state = {name: value.cpu() for name, value in parallel.state_dict().items()}
    expected = {f"module.{name}": value for name, value in alone.state_dict().items()}
    torch.testing.assert_close(state, expected)


def test_fused_optimizers_and_gradient_clipping_work_across_gpus():
    with virtual_gpus(2):
        parts = [nn.Linear(3, 3).cuda(0), nn.Linear(3, 3).cuda(1)]
        parameters = [value for part in parts for value in part.parameters()]
        optimizer = torch.optim.AdamW(parameters, fused=True)
        parts[1](parts[0](torch.ones(2, 3).cuda()).cuda(1)).sum().backward()
        norm = nn.utils.clip_grad_norm_(parameters, 0.5)
        total = sum(value.grad.cpu().pow(2).sum() for value in parameters) ** 0.5
        optimizer.step()
    assert norm > 0
    assert total == pytest.approx(0.5, rel=1e-4)


def test_second_derivatives_pass_through_data_parallel():
    model = nn.Sequential(nn.Linear(DIM, 4), nn.Tanh()).double()
    batch = torch.randn(5, DIM, dtype=torch.float64)

    def penalty(net, leaf, weight):
        (slope,) = torch.autograd.grad(net(leaf).sum(), leaf, create_graph=True)
        return [value.cpu() for value in torch.autograd.grad(slope.pow(2).sum(), [leaf, weight])]

    expected = penalty(model, batch.clone().requires_grad_(), model[0].weight)
    with virtual_gpus(3):
        moved = copy.deepcopy(model).cuda()
        got = penalty(nn.DataParallel(moved), batch.cuda().requires_grad_(), moved[0].weight)
    torch.testing.assert_close(got, expected)


def test_the_tutorial_prints_its_lines_in_device_order(capsys):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 2)

        def forward(self, x):
            output = self.fc(x)
            print("\tIn Model: input size", x.size(), "output size", output.size())  # noqa: T201 - as the tutorial does
            return output

    with virtual_gpus(8):
        model = nn.DataParallel(Model()).to(torch.device("cuda:0"))
        output = model(torch.randn(30, 5).to("cuda:0"))
    rows = [4] * 7 + [2]
    lines = [
        f"\tIn Model: input size torch.Size([{row}, 5]) output size torch.Size([{row}, 2])" for row in rows
    ]
    assert capsys.readouterr().out.splitlines() == lines
    assert output.shape == (30, 2)


def test_other_dimensions_than_the_first_can_be_split():
    with virtual_gpus(2):
        output = nn.DataParallel(nn.Identity(), dim=1)(torch.arange(12.0).view(3, 4).cuda())
        assert output.tolist() == torch.arange(12.0).view(3, 4).tolist()


def test_the_functional_form_and_the_primitives_work_by_themselves():
    model, batch = nn.Linear(DIM, 3).double(), torch.randn(5, DIM, dtype=torch.float64)
    expected = model(batch)
    with virtual_gpus(3):
        moved = copy.deepcopy(model).cuda()
        ids = [0, 1, 2]
        inputs = nn.parallel.scatter(batch, ids)
        assert [(len(chunk), chunk.get_device()) for chunk in inputs] == [(2, 0), (2, 1), (1, 2)]
        replicas = nn.parallel.replicate(moved, ids)
        assert [replica.weight.get_device() for replica in replicas] == ids
        outputs = nn.parallel.parallel_apply(replicas, inputs)
        gathered = nn.parallel.gather(outputs, 1)
        assert gathered.get_device() == 1
        functional = nn.parallel.data_parallel(moved, batch.cuda(), ids, output_device=2)
        assert functional.get_device() == 2
        for output in (gathered, functional, nn.parallel.gather(outputs, "cpu")):
            torch.testing.assert_close(output.cpu(), expected)


def test_a_failing_replica_is_reported_with_its_number_and_device():
    class Picky(nn.Module):
        def forward(self, x):
            if x.get_device() == 1:
                raise ValueError("not here")
            return x

    with (
        virtual_gpus(2),
        pytest.raises(ValueError, match=r"Caught ValueError in replica 1 on device 1\.[\s\S]*not here"),
    ):
        nn.DataParallel(Picky())(torch.ones(4, 1))


def test_a_tensor_kept_on_the_module_fails_in_the_second_replica_in_cudas_words():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = torch.ones(3, device="cuda:0")

        def forward(self, x):
            return x + self.kept

    with virtual_gpus(2), pytest.raises(RuntimeError) as caught:
        nn.DataParallel(Keeps())(torch.ones(4, 3).cuda())
    text = str(caught.value)
    assert text.startswith("Caught RuntimeError in replica 1 on device 1.")
    assert "found at least two devices, cuda:1 and cuda:0!" in text


def test_devices_that_are_not_there_fail_in_pytorchs_words():
    with virtual_gpus(2):
        with pytest.raises(AssertionError, match=r"^Invalid device id$"):
            nn.DataParallel(nn.Linear(1, 1).cuda(), [0, 2])
        with pytest.raises(AssertionError, match=r"^Gather function not implemented for CPU tensors$"):
            nn.parallel.gather([torch.ones(1), torch.ones(1)], 0)
        with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
            nn.DataParallel(nn.LazyLinear(1).cuda())(torch.ones(4, 2))


def test_scalar_outputs_become_a_vector_with_pytorchs_warning():
    class Mean(nn.Module):
        def forward(self, x):
            return x.mean()

    leaf = torch.arange(4.0, requires_grad=True)
    with virtual_gpus(2):
        with pytest.warns(UserWarning, match="Was asked to gather along dimension 0"):
            output = nn.DataParallel(Mean())(leaf.cuda())
        assert output.tolist() == [0.5, 2.5]
        output.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0.5] * 4


def test_replica_0_works_on_the_modules_own_buffers_and_the_others_on_copies():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(()))

        def forward(self, x):
            self.rows += len(x)
            return x

    with virtual_gpus(3):
        parallel = nn.DataParallel(Counts().cuda())
        parallel(torch.ones(7, 1))
        assert parallel.module.rows.item() == 3


def test_outputs_unused_by_the_loss_give_zeros_and_no_error():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x):
            return self.used(x), self.unused(x)

    with virtual_gpus(3):
        parallel = nn.DataParallel(Two().cuda())
        parallel(torch.ones(6, 2))[0][:2].sum().backward()
        inner = parallel.module
        assert inner.used.weight.grad.tolist() == [[2, 2]]
        assert {value.grad.get_device() for value in inner.parameters() if value.grad is not None} == {0}


def test_models_wrapped_by_the_compiler_run_as_written_with_a_warning():
    with virtual_gpus(2):
        model = nn.Linear(3, 2).cuda()
        with pytest.warns(UserWarning, match="virtual GPUs compile nothing"):
            compiled = torch.compile(model)
        assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
        assert torch.equal(compiled(torch.ones(2, 3).cuda()), model(torch.ones(2, 3).cuda()))
        with pytest.warns(UserWarning, match="virtual GPUs compile nothing"):
            assert torch.compile(lambda x: x + 1)(torch.ones(1).cuda()).item() == 2
