"""A rank put tensors on another rank's GPU."""

from rankevents import AT, mistakes

from dpdemo.ranks.events import Ended, HomeGpu, OnOtherGpu


def run(first, second, *, home=1):
    return mistakes([HomeGpu(0), *first], [HomeGpu(home), *second])


def test_a_checkpoint_loaded_to_another_ranks_gpu_is_named():
    noted = [OnOtherGpu(AT, 0, 512, "torch.load"), Ended({"cuda:0": 3072, "cuda:1": 4096})]
    (found,) = run([], noted)
    assert found.text == "Rank 1 put 3 KiB on cuda:0, the GPU of rank 0"
    assert (found.at, "map_location" in found.advice) == (AT, True)


def test_a_second_gpu_of_its_own_is_right():
    assert run([], [OnOtherGpu(AT, 2, 512, "")]) == ()


def test_ranks_that_see_one_gpu_each_are_right():
    assert run([], [OnOtherGpu(AT, 0, 512, "")], home=0) == ()
