"""Saving, loading, copying and pickling keep tensors where they are, and move them where they are told."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.usefixtures("gpus")


def saved(value, **options):
    """Save and load `value`."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


@pytest.mark.parametrize(
    ("where", "device"),
    [
        (None, "cuda:1"),
        ("cpu", "cpu"),
        ("cuda:2", "cuda:2"),
        ({"cuda:1": "cuda:3"}, "cuda:3"),
        (torch.device("cuda"), "cuda:0"),
    ],
)
def test_loading_puts_tensors_where_map_location_says(where, device):
    tensor = torch.rand(3, device="cuda:1")
    loaded = saved({"weights": tensor}, map_location=where)["weights"]
    assert loaded.device == torch.device(device)
    assert loaded.tolist() == tensor.tolist()


def test_loading_for_a_gpu_that_is_not_there_fails_in_pytorchs_words():
    with pytest.raises(RuntimeError, match=r"Attempting to deserialize object on CUDA device 7 but .* is 4"):
        saved(torch.ones(1), map_location="cuda:7")


def test_a_saved_wrapped_model_comes_back_whole():
    model = nn.DataParallel(nn.Linear(3, 2).cuda())
    again = saved(model, weights_only=False)
    batch = torch.rand(5, 3)
    assert torch.equal(again(batch), model(batch))
    fresh = nn.DataParallel(nn.Linear(3, 2).cuda())
    fresh.load_state_dict(saved(model.state_dict()))
    assert torch.equal(fresh(batch), model(batch))
    assert fresh.module.weight.is_cuda


def test_deepcopy_and_pickle_keep_the_device_and_share_nothing():
    tensor = torch.zeros(3, device="cuda:1")
    for again in (
        copy.deepcopy(tensor),
        pickle.loads(pickle.dumps(tensor)),  # noqa: S301 - our own
        copy.deepcopy(nn.Parameter(tensor)),
    ):
        assert again.device == tensor.device
        again.data.add_(1)
    assert tensor.tolist() == [0, 0, 0]
    model = copy.deepcopy(nn.DataParallel(nn.Linear(3, 2).cuda()))
    assert model(torch.ones(4, 3)).is_cuda


def test_storages_name_and_change_their_device():
    storage = torch.ones(4, device="cuda:1").untyped_storage()
    assert storage.device == torch.device("cuda:1")
    assert storage.is_cuda
    assert storage.cpu().device.type == "cpu"
    assert storage.cuda(2).device == torch.device("cuda:2")
    assert storage.clone().device == storage.device
    assert storage.to(device="cuda:1") is storage


def test_a_loader_with_workers_and_pinned_memory_feeds_the_gpus():
    loader = DataLoader(TensorDataset(torch.arange(10.0)), batch_size=4, num_workers=2, pin_memory=True)
    rows = []
    for (batch,) in loader:
        assert batch.is_pinned()
        rows.extend(batch.cuda(non_blocking=True).tolist())
    assert rows == list(range(10))
