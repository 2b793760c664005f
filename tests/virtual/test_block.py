"""`virtual_gpus(n)` opens, closes, and leaves no trace."""

import os
import re
import sys

import pytest
import torch
from processes import run
from torch import nn
from torch.optim import optimizer as optimizer_hooks

import dpdemo.virtual
from dpdemo.arithmetic.cards import VIRTUAL
from dpdemo.virtual import VirtualGpuError, is_active, patches, state, virtual_gpus
from dpdemo.virtual.applying import Patch, applied, attributes
from dpdemo.virtual.block import _open
from dpdemo.virtual.errors import warn_if_untested

ABSENT = object()


def snapshot(storage="cpu"):
    """Return every attribute of the table with what it is now."""
    session = _open(2, [None, None], VIRTUAL, is_meta=storage == "meta", draws_as_cpu=False)
    try:
        table = patches.table(session)
    finally:
        state.session = None
    return [(patch.owner, patch.name, attributes(patch.owner).get(patch.name, ABSENT)) for patch in table]


def changed(before):
    """Name the attributes that are no longer what they were."""
    return [
        f"{owner}.{name}" for owner, name, value in before if attributes(owner).get(name, ABSENT) is not value
    ]


@pytest.mark.parametrize("storage", ["cpu", "meta"])
def test_every_replaced_attribute_is_put_back_by_identity(storage):
    before, hooks = snapshot(storage), len(optimizer_hooks._global_optimizer_post_hooks)
    with virtual_gpus(2, storage=storage):
        assert len(changed(before)) > 100
    assert changed(before) == []
    assert len(optimizer_hooks._global_optimizer_post_hooks) == hooks


def test_every_replaced_attribute_is_put_back_after_an_exception():
    before = snapshot()
    with pytest.raises(ZeroDivisionError, match="division"), virtual_gpus(2):
        len(torch.zeros(1, device="cuda")) // 0
    assert changed(before) == []
    assert not is_active()


def test_an_exception_while_patching_puts_back_what_was_replaced(monkeypatch):
    before = snapshot()
    table = patches.table

    def broken(*given):
        return [*table(*given), Patch(object(), "nothing", 1, "cannot be set")]

    monkeypatch.setattr(patches, "table", broken)
    with pytest.raises(TypeError, match="__dict__"), virtual_gpus(2):
        pass
    assert changed(before) == []
    assert not is_active()


class Stubborn:
    """Lets its attribute be changed once."""

    value = 0

    def __setattr__(self, name, value):
        if name in vars(self):
            raise PermissionError(name)
        super().__setattr__(name, value)

    def __delattr__(self, name):
        raise PermissionError(name)


def test_what_cannot_be_put_back_keeps_nothing_else_from_going_back():
    before, after = {"a": 1}, {"a": 1}
    owners = (before, Stubborn(), Stubborn(), after)
    with (
        pytest.raises(PermissionError, match="value"),
        applied([Patch(owner, "a" if isinstance(owner, dict) else "value", 2, "") for owner in owners]),
    ):
        assert before["a"] == after["a"] == 2
    assert before["a"] == after["a"] == 1


def test_a_block_is_active_only_while_it_is_open():
    assert not is_active()
    outside = torch.cuda.device_count()
    with virtual_gpus(3) as gpus:
        assert is_active()
        assert len(gpus) == 3
        assert torch.cuda.device_count() == 3
    assert not is_active()
    assert torch.cuda.device_count() == outside


def test_a_second_block_inside_the_first_is_an_error_and_leaves_the_first_alone():
    with virtual_gpus(2):
        with pytest.raises(VirtualGpuError, match="2 virtual GPUs is open already"), virtual_gpus(3):
            pass
        assert torch.cuda.device_count() == 2


def test_real_gpus_in_use_are_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with (
        pytest.raises(VirtualGpuError, match=r"uses real GPUs already.*CUDA_VISIBLE_DEVICES"),
        virtual_gpus(2),
    ):
        pass
    assert not is_active()


REAL_AFTER_VIRTUAL = """
import torch
from dpdemo.virtual import virtual_gpus

seen = torch.cuda.device_count()
with virtual_gpus(seen + 2):
    assert torch.cuda.device_count() == seen + 2
    torch.nn.DataParallel(torch.nn.Linear(5, 2).cuda())(torch.randn(9, 5, device="cuda")).sum().backward()
    held = torch.ones(3, device="cuda:1")
assert torch.cuda.device_count() == seen
assert not torch.cuda.is_initialized()
assert "NVIDIA" in torch.cuda.get_device_name(0)
print(torch.randn(3, device="cuda").sum().item(), held.device)
"""


@pytest.mark.skipif(not torch.cuda.device_count(), reason="needs a real GPU")
def test_real_gpus_are_out_of_sight_and_then_back():
    done = run([sys.executable, "-c", REAL_AFTER_VIRTUAL])
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("cpu\n")


def test_more_gpus_than_torch_reads_from_an_unset_variable_are_all_there():
    with virtual_gpus(100):
        assert torch.cuda.device_count() == 100
        assert torch.ones(1, device="cuda:99").get_device() == 99
        assert torch.cuda.device_count() == 100
        assert torch.cuda.get_device_name(99)


@pytest.mark.parametrize("number", [0, -1, 129, 1.5, "2", True, None])
def test_a_number_of_gpus_that_is_none_is_an_error(number):
    with pytest.raises(ValueError, match="`num_gpus`: expected a number from 1 to 128"), virtual_gpus(number):
        pass


def test_tensors_that_outlive_the_block_are_cpu_tensors():
    with virtual_gpus(2):
        tensor = torch.ones(3, device="cuda:1")
    assert tensor.device.type == "cpu"
    assert tensor.numpy().tolist() == [1, 1, 1]
    with virtual_gpus(1):
        assert not tensor.is_cuda


def test_after_the_block_cuda_fails_as_before_it():
    program = (
        "import torch\n"
        "from dpdemo.virtual import virtual_gpus\n"
        "def error():\n"
        "    try: torch.zeros(1, device='cuda')\n"
        "    except Exception as e: return type(e), str(e)\n"
        "before = error()\n"
        "with virtual_gpus(1): assert torch.zeros(1, device='cuda').is_cuda\n"
        "assert before is not None and error() == before, (before, error())\n"
    )
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    run([sys.executable, "-W", "error", "-c", program], check=True, env=hidden)


def test_the_public_names_are_these():
    assert sorted(dpdemo.virtual.__all__) == [
        "UnsupportedOpError",
        "VirtualGpuError",
        "VirtualGpus",
        "is_active",
        "separate_ledger",
        "suspended",
        "virtual_gpus",
    ]


def test_opening_a_block_and_working_in_it_does_not_import_the_compiler():
    program = (
        "import sys, torch\n"
        "from dpdemo.virtual import virtual_gpus\n"
        "with virtual_gpus(2):\n"
        "    net = torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda())\n"
        "    net(torch.ones(4, 3)).sum().backward()\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    run([sys.executable, "-c", program], check=True)


def test_a_missing_private_name_is_one_error_with_the_release():
    code = "import torch; del torch._C._nn._parse_to; import dpdemo.virtual"
    done = run([sys.executable, "-c", code])
    assert "VirtualGpuError: virtual GPUs need a name of PyTorch that torch 2." in done.stderr
    assert "_parse_to" in done.stderr


# ---- without numbers ----


@pytest.mark.parametrize("release", ["9.1.0", "2.1.0", "2.150.0"])
def test_a_release_that_is_untested_is_named_by_the_first_block_alone(monkeypatch, release):
    monkeypatch.setattr(torch, "__version__", release)
    warn_if_untested.cache_clear()
    with pytest.warns(UserWarning, match=rf"this is torch {release}:"), virtual_gpus(2):
        pass
    with virtual_gpus(2):  # a second warning would be an error
        pass


def test_a_model_from_before_the_block_keeps_them_too_and_its_optimizer():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    before = list(model.parameters())
    with virtual_gpus(2, storage="meta") as gpus:
        model.cuda()
        assert all(old is other for old, other in zip(before, model.parameters(), strict=True))
        nn.DataParallel(model)(torch.ones(4, 4)).sum().backward()
        optimizer.step()
        assert gpus.live_by_kind(0)["optimizer state"] == 8 * 512
        assert gpus.live_by_kind(0)["gradients"] == 512


def test_a_model_that_stays_outside_keeps_its_numbers():
    model = nn.Linear(2, 2)
    weight = model.weight.detach().clone()
    with virtual_gpus(1, storage="meta"):
        assert model(torch.ones(1, 2)).shape == (1, 2)
    assert torch.equal(model.weight, weight)


def test_a_tensor_that_outlives_the_block_is_a_meta_tensor():
    with virtual_gpus(1, storage="meta"):
        tensor = torch.ones(2, device="cuda")
    assert tensor.device.type == "meta"
    with virtual_gpus(1):
        assert not tensor.is_cuda


@pytest.mark.parametrize("storage", ["gpu", "", None, "META"])
def test_another_storage_is_an_error(storage):
    wording = re.escape(f"`storage`: expected 'cpu' or 'meta', got {storage!r}")
    with pytest.raises(ValueError, match=wording), virtual_gpus(1, storage=storage):
        pass


def test_a_tensor_of_the_host_that_is_too_large_to_be_made_has_no_numbers():
    with virtual_gpus(1, storage="meta") as gpus:
        layer = nn.Linear(300_000, 300_000)  # 360 GB
        assert layer.weight.device == torch.device("cpu")
        assert layer.cuda().weight is next(layer.parameters())
        assert gpus.live_by_kind(0)["parameters"] == 4 * 300_000**2 + 4 * 300_000 + 128
        noise = torch.randn(300_000, 300_000)
        assert (noise.device.type, noise.is_meta) == ("cpu", True)
        assert not torch.randn(1000, 1000).is_meta
        with pytest.raises(RuntimeError, match="negative dimension"):
            torch.empty(-1)


def test_a_list_of_numbers_of_torch_is_a_list_inside_the_block_and_after_it():
    class Before(torch.Tensor):
        pass

    def made(kind):
        return torch.tensor([torch.ones(()).as_subclass(kind)] * 2).tolist()

    with virtual_gpus(1, storage="meta"):

        class Inside(torch.Tensor):
            pass

        assert made(torch.Tensor) == made(Before) == [1, 1]
        assert torch.arange(4, device="cuda")[[1, 2]].tolist() == [1, 2]
    assert made(torch.Tensor) == made(Before) == made(Inside) == [1, 1]
    assert [row.tolist() for row in torch.eye(2)] == [[1, 0], [0, 1]]
