"""Two ranks on one GPU, and ranks that come to a further GPU."""

from types import SimpleNamespace

import pytest
import torch.distributed as dist

from dpdemo.virtual.ops import own_gpu


class Group:
    """Rank 1 of a group of two."""

    group_name = "of test_own_gpu"

    def size(self):
        return 2

    def rank(self):
        return 1


GROUP = Group()
SESSION = SimpleNamespace(visible=(0, 1))


class Store:
    """A store whose `wait` raises an error, as C++ does."""

    def __init__(self, error):
        self.error, self.kept = error, {}

    def set(self, key, value):
        self.kept[key] = value

    def get(self, _):
        return b"0"

    def wait(self, *_):
        raise self.error


@pytest.fixture
def begin(monkeypatch):
    """Begin a collective on a second GPU with a store."""

    def run(store):
        monkeypatch.setattr(own_gpu, "_connected", {(GROUP.group_name, 0)})
        monkeypatch.setitem(dist.distributed_c10d._world.pg_map, GROUP, ("nccl", store))
        own_gpu.check_own_gpu(SESSION, GROUP, 1)

    return run


def test_a_rank_that_hosted_the_store_and_has_ended_is_not_blamed(begin):
    begin(Store(dist.DistNetworkError("Connection reset by peer")))


def test_a_rank_that_never_comes_to_the_further_gpu_is_named(begin):
    with pytest.raises(dist.DistBackendError, match="cuda:1 after others on another GPU, and rank 0"):
        begin(Store(dist.DistStoreError("wait timeout after 30000ms")))
