"""Replicas take turns in device order, and never hang."""

import ctypes
import math
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from processes import PATIENCE_SECONDS
from torch import nn

from dpdemo.virtual import VirtualGpuError, virtual_gpus
from dpdemo.virtual.patches import replicas


class Does(nn.Module):
    """A module that does something with its chunk."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def forward(self, x):
        self.work(x)
        return x


@pytest.mark.usefixtures("gpus")
def test_one_replica_is_through_before_the_next_begins():
    events = []

    def work(x):
        events.append(("begin", x.get_device()))
        end = time.thread_time() + 0.1 * (4 - x.get_device())
        while time.thread_time() < end:  # busy: a replica that sleeps counts as waiting
            torch.ones(100, 100).mm(torch.ones(100, 100))
        events.append(("end", x.get_device()))

    nn.DataParallel(Does(work))(torch.ones(4, 1))
    assert events == [(what, index) for index in range(4) for what in ("begin", "end")]


@pytest.mark.usefixtures("gpus")
def test_order_is_that_of_the_device_ids():
    seen = []
    nn.DataParallel(Does(lambda x: seen.append(x.get_device())), [2, 0, 3])(torch.ones(6, 1))
    assert seen == [2, 0, 3]


@pytest.mark.usefixtures("gpus")
def test_replicas_meet_at_a_barrier_also_where_the_system_tells_nothing_of_threads(monkeypatch):
    monkeypatch.setattr(replicas, "_STATUS", "/nowhere/{}")
    monkeypatch.setattr(replicas, "_PATIENCE_S", math.inf)  # seen to wait, not given up on
    barrier = threading.Barrier(4)
    nn.DataParallel(Does(lambda _: barrier.wait(timeout=PATIENCE_SECONDS)))(torch.ones(4, 1))


@pytest.mark.usefixtures("gpus")
def test_replicas_that_meet_at_a_barrier_do_not_hang():
    barrier = threading.Barrier(4)
    for _ in range(3):
        nn.DataParallel(Does(lambda _: barrier.wait(timeout=PATIENCE_SECONDS)))(torch.ones(4, 1))


@pytest.mark.usefixtures("gpus")
def test_a_replica_that_collects_from_the_others_does_not_hang():
    """As in synchronised batch normalisation: replica 0 waits for the messages of the others."""
    to_master = queue.Queue()
    back = [queue.Queue[float]() for _ in range(4)]

    def work(x):
        me = x.get_device()
        if me == 0:
            total = x.sum().item() + sum(to_master.get(timeout=PATIENCE_SECONDS) for _ in range(3))
            for slave in back[1:]:
                slave.put(total)
        else:
            to_master.put(x.sum().item())
            assert back[me].get(timeout=PATIENCE_SECONDS) == 8

    nn.DataParallel(Does(work))(torch.ones(8, 1))


@pytest.mark.usefixtures("gpus")
def test_a_replica_that_asks_again_and_again_does_not_hang():
    arrived = threading.Event()

    def work(x):
        if x.get_device() == 3:
            arrived.set()
        while not arrived.is_set():
            time.sleep(0.001)

    nn.DataParallel(Does(work))(torch.ones(4, 1))


@pytest.mark.usefixtures("gpus")
def test_data_parallel_inside_data_parallel_keeps_the_order():
    seen = []

    class Outer(nn.Module):
        def forward(self, x):
            home = x.get_device()
            ids = [home, home + 1]
            inner = nn.DataParallel(Does(lambda y: seen.append((home, y.get_device()))), ids)
            return inner(x)

    nn.DataParallel(Outer(), [0, 2])(torch.ones(8, 1))
    assert seen == [(0, 0), (0, 1), (2, 2), (2, 3)]


@pytest.mark.usefixtures("gpus")
def test_a_replica_has_its_own_device_and_the_callers_gradient_mode_and_nothing_else():
    seen = []

    def work(x):
        assert torch.zeros(1, device="cuda").device == x.device
        seen.append((torch.cuda.current_device(), torch.is_grad_enabled(), torch.get_autocast_dtype("cuda")))

    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        nn.DataParallel(Does(work))(torch.ones(4, 1))
    # autocast's dtype is the thread's own: float16, as on real GPUs (pytorch/pytorch#60706)
    assert seen == [(index, False, torch.float16) for index in range(4)]
    assert torch.cuda.current_device() == 0


@pytest.mark.usefixtures("gpus")
def test_a_replica_computes_with_as_many_threads_as_its_caller():
    """With another number MKL may take another kernel, and a chunk has other bytes than on the CPU."""
    library = ctypes.CDLL(torch._C.__file__)
    if not hasattr(library, "omp_get_max_threads"):
        pytest.skip("this torch has no OpenMP, which alone tells without changing it")
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(before + 1)
    try:
        nn.DataParallel(Does(lambda _: seen.append(library.omp_get_max_threads())))(torch.ones(4, 1))
    finally:
        torch.set_num_threads(before)
    assert seen == [before + 1] * 4


@pytest.mark.usefixtures("gpus")
def test_threads_started_in_a_block_see_the_gpus_whatever_class_they_are():
    seen = []

    class Mine(threading.Thread):
        def run(self):
            seen.append((torch.cuda.current_device(), str((torch.ones(1, device="cuda:2") + 1).device)))

    torch.cuda.set_device(1)
    for thread in (
        Mine(),
        threading.Thread(target=Mine.run, args=(None,)),
        threading.Timer(0, Mine.run, (None,)),
    ):
        thread.start()
        thread.join()
    assert seen == [(0, "cuda:2")] * 3
    torch.cuda.set_device(0)


def test_two_threads_can_run_data_parallel_at_once():
    def loop(gpus):
        parallel = nn.DataParallel(nn.Linear(3, 2).cuda())
        for _ in range(10):
            parallel(torch.ones(len(gpus), 3)).sum().backward()
        results.append(parallel.module.bias.grad.tolist())

    results = []
    with virtual_gpus(3) as gpus:
        threads = [threading.Thread(target=loop, args=(gpus,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [[30, 30]] * 2


def test_a_thread_from_before_the_block_is_told_that_it_does_not_see_the_gpus():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with virtual_gpus(1):
            there = torch.ones(1, device="cuda")
            for use in (
                lambda: torch.ones(1, device="cuda"),
                lambda: torch.ones(1).cuda(),
                lambda: there.device,
            ):
                with pytest.raises(
                    VirtualGpuError, match="running before the block of virtual GPUs was opened"
                ):
                    pool.submit(use).result()
        assert pool.submit(lambda: there.device.type).result() == "cpu"


@pytest.mark.parametrize("storage", ["cpu", "meta"])
def test_a_parameter_without_elements_is_on_its_replicas_gpu(storage):
    """C++ makes an empty tensor of its own for it (torch/csrc/utils/tensor_flatten.h, unflatten)."""

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.registers = nn.Parameter(torch.ones(2, 8)), nn.Parameter(torch.empty(0, 8))

        def forward(self, x):
            assert self.registers.device == x.device
            return torch.cat([self.registers, self.word + x])

    with virtual_gpus(2, storage=storage):
        model = nn.DataParallel(Tokens().cuda())
        result = model(torch.ones(4, 8))
        assert result.shape == (4, 8)
        result.sum().backward()
        assert model.module.registers.grad.device == torch.device("cuda:0")
