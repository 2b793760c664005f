"""One rank of many: collectives are over at once, and what they leave is this rank's own."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

from dpdemo.virtual import suspended, virtual_gpus
from dpdemo.virtual.alone import one_of_many


@pytest.fixture
def second_of_four():
    with virtual_gpus(4, storage="meta") as gpus, one_of_many(4, 1):
        yield gpus


@pytest.mark.usefixtures("second_of_four")
def test_a_rank_learns_who_it_is_as_under_torchrun():
    assert (dist.get_rank(), dist.get_world_size()) == (1, 4)
    assert [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")] == ["1", "4", "1"]
    assert torch.cuda.current_device() == 1


def test_a_rank_of_the_second_node_is_on_its_own_gpu():
    with virtual_gpus(2, storage="meta"), one_of_many(4, 3, gpus_per_node=2):
        assert torch.cuda.current_device() == 1
        assert os.environ["GROUP_RANK"] == "1"


@pytest.mark.usefixtures("second_of_four")
def test_the_program_may_start_the_group_that_it_is_in():
    dist.init_process_group("nccl")
    assert dist.get_world_size() == 4


def test_everything_is_put_back():
    before = dict(os.environ), dist.init_process_group, vars(torch.Tensor).get("is_meta")
    with virtual_gpus(2, storage="meta"), one_of_many(2):
        pass
    assert (dict(os.environ), dist.init_process_group, vars(torch.Tensor).get("is_meta")) == before
    assert not dist.is_initialized()


@pytest.mark.usefixtures("second_of_four")
def test_a_gather_on_the_host_repeats_what_the_rank_has():
    objects = [None] * 4
    dist.all_gather_object(objects, {"rank": 1})
    assert objects == [{"rank": 1}] * 4
    numbers = torch.zeros(4, 2)
    dist.all_gather([*numbers], torch.tensor([3.0, 5.0]))
    assert numbers.tolist() == [[3.0, 5.0]] * 4


@pytest.mark.usefixtures("second_of_four")
def test_a_work_is_done_when_it_is_returned():
    work = dist.all_reduce(torch.ones(3, device="cuda"), async_op=True)
    assert work.is_completed()
    assert work.wait()
    dist.barrier()


def test_buckets_are_on_the_gpu_from_construction_on(second_of_four):
    model = nn.Linear(500, 500).cuda()
    before = second_of_four.live_bytes(1)
    wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[1])
    second_of_four.live_by_kind(1)
    assert second_of_four.live_bytes(1) - before == -(-4 * (500 * 500 + 500) // 512) * 512
    assert wrapped(torch.zeros(2, 500, device="cuda")).device == torch.device("cuda", 1)


def test_a_second_model_may_be_wrapped_in_the_same_process():
    for _ in range(2):
        with virtual_gpus(2, storage="meta"), one_of_many(2):
            model = nn.parallel.DistributedDataParallel(nn.Linear(50, 50).cuda(), device_ids=[0])
            for _ in range(2):
                model(torch.zeros(2, 50, device="cuda")).sum().backward()


def test_shards_and_gathered_blocks_are_counted_as_such(second_of_four):
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Linear(512, 512, bias=False).cuda())
    second_of_four.live_by_kind(1)
    model(torch.zeros(2, 512, device="cuda")).sum().backward()
    whole = 4 * 512 * 512
    assert second_of_four.live_by_kind(1)["parameters"] == whole // 4
    assert second_of_four.most_by_kind(1)["gathered blocks"] >= whole
    assert model.weight.grad.to_local().shape == (128, 512)


def test_shards_on_the_host_take_no_gpu():
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    with virtual_gpus(2, storage="meta") as gpus, one_of_many(2):
        model = nn.Linear(512, 512, bias=False).cuda()
        fully_shard(model, offload_policy=CPUOffloadPolicy(pin_memory=False))
        model(torch.zeros(2, 512, device="cuda")).sum().backward()
        assert model.weight.device.type == "cpu"
        assert gpus.live_bytes(0) < 4 * 512 * 512


@pytest.mark.usefixtures("second_of_four")
def test_a_model_is_built_while_the_gpus_are_suspended():
    from torch.distributed.fsdp import fully_shard

    fully_shard(nn.Linear(8, 8).cuda())  # from now on `is_meta` is asked of the thread
    with suspended():
        with torch.device("meta"):
            assert nn.Linear(8, 8).weight.is_meta
        assert not nn.Linear(8, 8).weight.is_meta
        assert nn.SyncBatchNorm(8).eval()(torch.ones(2, 8)).shape == (2, 8)
