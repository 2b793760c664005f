"""The memory of a rank under DistributedDataParallel and fully_shard: settings, own programs, errors."""

import os
from pathlib import Path

import pytest
import torch
from fastpart import mostly_slow
from steps_of_ranks import ROWS, Net
from torch import nn

from dpdemo import RunError, UsageError
from dpdemo.config.load import make_config
from dpdemo.memory import largest_batch, predict_memory
from dpdemo.memory.case import Case
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.ranks import shards_of
from dpdemo.memory.steps import Stepper
from dpdemo.results.memorydata import PARTS, Training
from dpdemo.results.wrapping import Wrapping

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


def predict(strategy="fsdp2", model="steps_of_ranks:Net", gpus=2, training=None, **settings):
    return predict_memory(
        model=model, gpus=gpus, batch_size=ROWS, inputs=[f"{ROWS}x64"], strategy=strategy,
        training=training or Training(loss="mean"), wrapping=Wrapping(**settings),
    )  # fmt: skip


def part(gpu, name):
    return gpu.parts[PARTS.index(name)]


NUMBERS = sum(parameter.numel() for parameter in Net().parameters())


def test_ddp_holds_everything_once_and_a_copy_of_its_gradients():
    report = predict("ddp", gpus=3)
    assert [gpu.device for gpu in report.gpus] == ["cuda:0", "cuda:1", "cuda:2"]
    assert {gpu.rows for gpu in report.gpus} == {ROWS}
    first = report.gpus[0]
    assert part(first, "parameters") == pytest.approx(4 * NUMBERS, rel=0.01)
    assert part(first, "gradient buckets") == pytest.approx(4 * NUMBERS, rel=0.01)
    assert part(first, "replica copies") == part(first, "gathered outputs") == 0


def test_views_of_buckets_save_the_copy_of_the_gradients():
    saved = predict("ddp").gpus[0].peak_bytes - predict("ddp", bucket_view=True).gpus[0].peak_bytes
    assert saved > 0


@pytest.mark.parametrize(
    ("settings", "is_booked"),
    mostly_slow(
        [
            ({"bucket_mb": 0.05}, True),
            ({"training": Training("momentum")}, True),
            ({"bucket_view": True}, False),
        ],
        3,
    ),
)
def test_a_pass_of_ddp_that_is_booked_twice_is_a_pass_that_is_made_twice(settings, is_booked, monkeypatch):
    passes, step = [], Stepper._step
    monkeypatch.setattr(Stepper, "_step", lambda *args: passes.append(1) or step(*args))
    once = predict("ddp", **settings).gpus
    assert len(passes) == 2 - is_booked
    monkeypatch.setattr(Stepper, "books_twice", False)
    assert once == predict("ddp", **settings).gpus


def test_a_program_of_ddp_whose_hooks_may_allocate_by_bucket_makes_both_passes(monkeypatch):
    passes, step = [], Stepper._step
    monkeypatch.setattr(Stepper, "_step", lambda *args: passes.append(1) or step(*args))
    predict("ddp", model="test_ranks_memory:in_ddp")
    assert len(passes) == 2


def test_fully_shard_holds_a_share_of_parameters_and_optimizer_state():
    first = predict(gpus=4).gpus[0]
    assert part(first, "parameters") == pytest.approx(4 * NUMBERS / 4, rel=0.02)
    assert part(first, "optimizer state") == pytest.approx(8 * NUMBERS / 4, rel=0.02)
    assert part(first, "gathered blocks") > 0


PEAKS_LESS = {
    "checkpoint": {"checkpoint": "full"}, "mixed": {"mixed": "bf16"}, "offload": {"offload": True},
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_slow(PEAKS_LESS, 3))
def test_a_setting_that_saves_memory_saves_memory(name):
    assert predict(**PEAKS_LESS[name]).gpus[0].peak_bytes < predict().gpus[0].peak_bytes


def test_the_reduction_is_in_the_dtype_that_is_named():
    given = {"mixed": "bf16", "training": Training("sgd", loss="mean")}
    half, whole = (predict(reduce_dtype=dtype, **given).gpus[0] for dtype in ("bf16", "fp32"))
    assert half.peak_bytes < whole.peak_bytes


def test_offloaded_shards_take_nothing_of_the_gpu():
    first = predict(offload=True).gpus[0]
    assert part(first, "parameters") == part(first, "optimizer state") == 0


def test_uneven_shards_are_those_of_torch_chunk():
    class Placed:
        def __init__(self, size):
            self.shape, self.placements = (size,), [torch.distributed.tensor.Shard(0)]
            self.device_mesh = mesh

    class Model:
        def parameters(self):
            return [Placed(10), Placed(3)]

    import torch.distributed.tensor

    class Mesh:
        mesh = torch.arange(4)

    mesh = Mesh()
    wanted = [tuple(len(chunk) for chunk in torch.arange(size).chunk(4)) for size in (10, 3)]
    found = [*zip(*shards_of(Model(), 4), strict=True)]
    assert found == [sizes + (0,) * (4 - len(sizes)) for sizes in wanted]


def test_the_last_rank_of_uneven_shards_has_a_column_of_its_own():
    report = predict(model="steps_of_ranks:uneven", gpus=3)
    first, second, last = report.gpus
    assert first.peak_bytes == second.peak_bytes > last.peak_bytes


def test_ranks_of_several_nodes_are_named_by_their_number():
    report = predict_memory(
        model="steps_of_ranks:Net", gpus=2, nodes=2, batch_size=ROWS, inputs=[f"{ROWS}x64"], strategy="fsdp2"
    )
    assert [gpu.device for gpu in report.gpus] == ["rank:0", "rank:1", "rank:2", "rank:3"]
    assert report.num_devices == 4


def test_a_batch_of_all_ranks_is_shared():
    given = {"model": "steps_of_ranks:Net", "gpus": 4, "inputs": ["96x64"], "strategy": "ddp"}
    report = predict_memory(batch_size=96, batch_size_is="global", **given)
    assert {gpu.rows for gpu in report.gpus} == {24}
    with pytest.raises(UsageError, match="expected a global batch_size that the 4 ranks divide, got 3"):
        predict_memory(batch_size=3, batch_size_is="global", **given)


def in_ddp():
    torch.distributed.init_process_group("nccl")
    ordinal = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(ordinal)
    return nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[ordinal])


def in_ddp_on_the_host():
    return nn.parallel.DistributedDataParallel(Net())


def in_fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(Net())


def in_ddp_twice():
    return nn.parallel.DistributedDataParallel(in_ddp())


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    model = Net().cuda()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def in_data_parallel():
    return nn.DataParallel(Net())


class Spare(nn.Module):
    """A layer that normalises rows, and one that nothing calls."""

    def __init__(self):
        super().__init__()
        self.norm, self.spare = nn.SyncBatchNorm(64), nn.Linear(64, 64)

    def forward(self, x):
        return self.norm(x)


def in_ddp_with_a_spare_layer():
    return nn.parallel.DistributedDataParallel(Spare().cuda(), device_ids=[0], find_unused_parameters=True)


def test_numbers_that_ddp_and_synchronised_norms_read_need_not_be_there():
    given = {
        "model": "test_ranks_memory:in_ddp_with_a_spare_layer", "gpus": 2, "strategy": "ddp",
        "batch_size": 99, "inputs": ["99x64"],
    }  # fmt: skip
    assert predict_memory(**given).gpus == predict_memory(numbers=True, **given).gpus


def test_unused_parameters_that_ddp_refuses_have_a_way_out():
    with pytest.raises(RunError, match="finished reduction in the prior iteration") as caught:
        predict("ddp", model="test_ranks_memory:Spare")
    assert "find_unused_parameters=True" in caught.value.hint


def on_a_mesh_of_two_dimensions():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(
        nn.Sequential(nn.Linear(64, 50), nn.Linear(50, 5)).cuda(), mesh["tensor"],
        {"0": ColwiseParallel(), "1": RowwiseParallel()},
    )  # fmt: skip
    return fully_shard(model, mesh=mesh["data"])


def test_each_rank_of_a_mesh_has_groups_of_its_own():
    report = predict(model="test_ranks_memory:on_a_mesh_of_two_dimensions", gpus=4)
    first, second, third, last = (gpu.peak_bytes for gpu in report.gpus)
    assert first == second > third == last  # the last two have 12 of 25 rows, and the first two 13
    assert not any("uneven" in note for note in report.notes)


def on_a_mesh_that_copies_shards():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("copies", "shards"))
    return fully_shard(nn.Sequential(nn.Linear(64, 50), nn.Linear(50, 5)).cuda(), mesh=mesh)


@pytest.mark.parametrize(
    ("name", "alike"),
    [("on_a_mesh_of_two_dimensions", [0, 0, 1, 1]), ("on_a_mesh_that_copies_shards", [0, 1, 0, 1])],
)
def test_ranks_hold_the_same_where_their_own_parameters_have_the_same_shapes(name, alike):
    case = Case(make_config({"model": f"test_ranks_memory:{name}", "gpus": 4, "strategy": "fsdp2"}),
                Training(), Hardware())  # fmt: skip
    shapes = []
    for rank in range(4):
        with case.opened(rank) as stepper:
            shapes.append([parameter.to_local().shape for parameter in stepper.built.model.parameters()])
            shards = shards_of(stepper.built.model, 4)  # of any rank, the same
            assert [shards.index(each) for each in shards] == [alike.index(each) for each in alike]
    assert [shapes.index(each) for each in shapes] == [alike.index(each) for each in alike]


def never_resharded():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(Net(250).cuda())
    model.set_reshard_after_backward(False)
    return model


def test_shards_are_uneven_also_where_a_step_leaves_parameters_whole():
    first, *_, last = predict(model="test_ranks_memory:never_resharded", gpus=3).gpus
    assert last.peak_bytes < first.peak_bytes


@pytest.mark.parametrize(("strategy", "function"), [("ddp", "in_ddp"), ("fsdp2", "sharded")])
def test_a_function_may_wrap_its_model_itself(strategy, function):
    own = predict(strategy, model=f"test_ranks_memory:{function}")
    assert [gpu.peak_bytes for gpu in own.gpus] == [gpu.peak_bytes for gpu in predict(strategy).gpus]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"gpus": 1}, UsageError, "expected 2 ranks or more under fsdp2, got 1"),
        ({"blocks": ("Blok",)}, UsageError, "expected the class of a module of the model, got Blok"),
        ({"strategy": "ddp", "model": "test_ranks_memory:in_ddp_twice"}, UsageError, "expected one wrapper"),
        ({"model": "test_ranks_memory:in_ddp"}, UsageError, "got one that is in DistributedDataParallel"),
        ({"model": "test_ranks_memory:in_fsdp1"}, UsageError, r"FullyShardedDataParallel \(FSDP1\)"),
        ({"model": "test_ranks_memory:in_data_parallel"}, UsageError, "got one that is in DataParallel"),
        ({"model": "test_ranks_memory:sharded", "mixed": "bf16"}, UsageError, "which wraps its model"),
        (
            {"strategy": "ddp", "model": "test_ranks_memory:in_ddp_on_the_host"},
            UsageError,
            "moved to its GPU",
        ),
        ({"strategy": "ddp", "mixed": "bf16"}, UsageError, "expected the strategy fsdp2, got ddp"),
        ({"strategy": "ddp", "blocks": ("Block",)}, UsageError, "or checkpointed blocks, got ddp"),
        ({"bucket_mb": 1}, UsageError, "expected the strategy ddp, got fsdp2"),
        ({"strategy": "ddp", "model": "test_ranks_memory:frozen"}, RunError, "DistributedDataParallel takes"),
        ({"checkpoint": "full", "model": "test_ranks_memory:flat"}, UsageError, "repeats a block"),
        ({"checkpoint": "test_ranks_memory:nothing"}, UsageError, "no .*`nothing`|`nothing`"),
    ],
)
def test_what_cannot_be_is_a_clear_error(given, error, message):
    with pytest.raises(error, match=message):
        predict(**given)


def frozen():
    return Net().requires_grad_(requires_grad=False)


def flat():
    return nn.Sequential(nn.Linear(64, 8), nn.ReLU())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mixed": "bfloat16"}, "expected one of bf16, fp16, got 'bfloat16'"),
        ({"keep_unsharded": "some"}, "expected one of root, last, all, got 'some'"),
        ({"checkpoint": "half"}, "expected full, a number of blocks, or `pkg.mod:function`, got 'half'"),
        ({"checkpoint": "0"}, "got '0'"),
        ({"lora": 0}, "expected a number above 0, got 0"),
        ({"bucket_mb": -1}, "expected a number above 0, got -1"),
        ({"lora_targets": ("up",)}, "expected `lora` beside it"),
    ],
)
def test_a_setting_that_does_not_exist_is_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        Wrapping(**settings)


def test_a_model_without_blocks_is_noted_as_one_group():
    report = predict(model="test_ranks_memory:flat")
    assert any("the whole model as one group" in note for note in report.notes)


def test_the_largest_batch_of_each_rank_fits_and_the_next_one_does_not():
    given = {
        "model": "steps_of_ranks:Net", "gpus": 2, "strategy": "fsdp2", "inputs": ["96x64"],
        "gpu_memory": "250MiB", "reserve": 0,
    }  # fmt: skip
    found = largest_batch(batch_size=96, **given)
    largest = found.fit.largest
    assert largest > 96
    answers = [predict_memory(batch_size=rows, **given).answer for rows in (largest, largest + 1)]
    assert answers[0] == "fits" != answers[1]
    assert "activation checkpointing" in {remedy.name for remedy in found.fit.remedies}
    assert "the largest that does is" in str(found)


def selective():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(_context, operator, *_args, **_kwargs):
        wanted = operator is torch.ops.aten._scaled_dot_product_efficient_attention.default
        return CheckpointPolicy.MUST_SAVE if wanted else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


@pytest.mark.slow
def test_a_selective_policy_keeps_the_outputs_of_attention():
    given = {"model": "dpdemo.examples.gpt:gpt2", "gpus": 2, "inputs": ["4x256:int64"], "strategy": "ddp"}
    full, kept = (
        predict_memory(wrapping=Wrapping(checkpoint=way), training=Training("none"), **given).gpus[0]
        for way in ("full", "test_ranks_memory:selective")
    )
    outputs = 12 * 4 * 256 * 768 * 4
    most = [gpu.largest[PARTS.index("activations")] for gpu in (full, kept)]
    assert most[1] - most[0] == pytest.approx(outputs, rel=0.03)


def test_an_output_that_is_dropped_before_backward_is_not_there_in_it():
    given = {"model": "steps_of_ranks:wide", "gpus": 2, "inputs": ["4096x64"], "batch_size": 4096}
    held = predict_memory(strategy="ddp", **given)
    freed = predict_memory(strategy="ddp", training=Training(frees_output=True), **given)
    assert held.gpus[0].peak_bytes - freed.gpus[0].peak_bytes == 4096 * 4096 * 4
    assert any("holds the model's output (64 MiB)" in note for note in held.notes)
    assert not freed.notes


class Doubts(nn.Module):
    """A model that checks its numbers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        assert (x > 0).all()
        return self.layer(x)


def test_numbers_that_were_made_up_are_noted():
    report = predict("dp", model="test_ranks_memory:Doubts", training=Training("adafactor"))
    checked, scaled = (note for note in report.notes if "not known" in note)
    assert checked.startswith(
        "Assumed: checks pass that read numbers that are not known (test_ranks_memory.py:"
    )
    assert scaled.startswith(
        "Assumed: the optimizer scales by 1 where it reads numbers that are not known (_ada"
    )
    assert not any("not known" in note for note in predict("dp").notes)
