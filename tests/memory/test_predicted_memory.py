"""A prediction is what the same step holds with real numbers, and what can be worked out by hand."""

from dataclasses import replace

import pytest
import torch
from fastpart import mostly_slow
from torch import nn

from dpdemo import RunError, UsageError
from dpdemo.arithmetic.cards import CONTEXT_BYTES
from dpdemo.config.load import make_config
from dpdemo.epochs.devices import chosen_devices
from dpdemo.epochs.dp import place
from dpdemo.memory import predict_memory
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.inputs import BatchMaker
from dpdemo.memory.steps import Stepper
from dpdemo.models.modules import build
from dpdemo.results.memorydata import PARTS, Training
from dpdemo.virtual import virtual_gpus

MODELS = ("linear", "partial", "hybrid", "cnn", "rnn", "transformer")
WORKSPACE = 64 * 2**20


def part(gpu, name):
    return gpu.parts[PARTS.index(name)]


def blocks(num_bytes):
    """Round up to the caching allocator's blocks."""
    return -(-num_bytes // 512) * 512


@pytest.mark.parametrize(
    "training",
    mostly_slow(
        [Training(), Training("momentum", "mse"), Training("none", amp=True), Training(inference=True)], 4
    ),
    ids=["adamw", "momentum", "amp", "inference"],
)
@pytest.mark.parametrize("model", mostly_slow(MODELS, 3))
def test_without_numbers_the_step_holds_what_it_holds_with_them(model, training):
    config = make_config({"model": model, "gpus": 3, "batch_size": 32, "input_size": 12})
    predicted = predict_memory(config, training=training).gpus
    with virtual_gpus(3) as gpus:
        assert len(gpus.recorder.allocators) == 3  # from before the model is built, as in a prediction
        built = build(config, place(config, chosen_devices(config)))
        real = (
            Stepper(gpus, built, BatchMaker(config, None, has_numbers=True), training, [None] * 3)
            .measure(32)
            .gpus
        )
    assert [replace(gpu, rows=0) for gpu in predicted] == list(real)


@pytest.mark.parametrize("optimizer", ["none", "sgd", "momentum", "adamw"])
def test_a_linear_layer_holds_what_its_shapes_say(optimizer):
    rows, width_in, width_out, num_gpus = 300, 512, 256, 3
    weights = blocks(4 * width_in * width_out) + blocks(4 * width_out)
    report = predict_memory(
        gpus=num_gpus, batch_size=rows, input_size=width_in, output_size=width_out,
        training=Training(optimizer, "mse"),
    )  # fmt: skip
    first, second, third = report.gpus
    assert report.num_parameters == width_in * width_out + width_out
    assert [part(gpu, "parameters") for gpu in report.gpus] == [weights, 0, 0]
    assert part(first, "optimizer state") == {"momentum": weights, "adamw": 2 * weights}.get(optimizer, 0)
    # a replica is fullest when its gradients are put into one buffer, to be sent to the first GPU
    in_one_buffer = blocks(4 * (width_in * width_out + width_out))
    assert second.parts == third.parts
    assert second.phase == "backward"
    assert part(second, "temporaries") == weights + in_one_buffer
    assert second.peak_bytes == weights + in_one_buffer + WORKSPACE


def test_the_parts_add_up_to_the_peak_and_the_room_left_to_the_capacity():
    report = predict_memory(gpus=2, model="cnn", input_size=64, gpu_memory="1GiB")
    for gpu in report.gpus:
        assert sum(gpu.parts) == gpu.peak_bytes
        assert gpu.spare_bytes + gpu.needed_bytes == gpu.capacity_bytes == 2**30
        assert gpu.needed_bytes == gpu.reserved_bytes + CONTEXT_BYTES
        assert gpu.reserved_bytes >= gpu.peak_bytes
    assert report.fits
    assert report.fullest.device == "cuda:0"


def test_each_gpu_may_have_its_own_size_and_the_one_that_is_too_small_is_named():
    report = predict_memory(gpus=3, gpu_memory=["1GiB", "64MiB", "1GiB"], reserve=0)
    assert [gpu.fits for gpu in report.gpus] == [True, False, True]
    assert not report.fits
    assert report.fullest.device == "cuda:1"


def test_idle_gpus_hold_nothing_and_get_no_rows():
    report = predict_memory(gpus=8, batch_size=10)
    assert [gpu.rows for gpu in report.gpus] == [2, 2, 2, 2, 2, 0, 0, 0]
    assert [gpu.peak_bytes for gpu in report.gpus[5:]] == [0, 0, 0]


def test_another_output_device_takes_the_loss_and_is_shown_although_it_gets_no_rows():
    plain = predict_memory(gpus=[0, 1], batch_size=3000, output_size=500)
    other = predict_memory(gpus=[0, 1], batch_size=3000, output_size=500, output_device=2)
    assert [gpu.device for gpu in other.gpus] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [gpu.rows for gpu in other.gpus] == [1500, 1500, 0]
    assert part(other.gpus[2], "gathered outputs") == part(plain.gpus[0], "gathered outputs") > 0
    assert other.gpus[0].peak_bytes < plain.gpus[0].peak_bytes


def test_half_precision_halves_what_is_kept_and_autocast_keeps_the_parameters():
    wide, half, amp = (
        predict_memory(gpus=2, model="transformer", batch_size=64, **given)
        for given in ({}, {"dtype": "bfloat16"}, {"training": Training(amp=True)})
    )
    assert part(half.gpus[1], "activations") < 0.75 * part(wide.gpus[1], "activations")
    assert part(amp.gpus[0], "parameters") == part(wide.gpus[0], "parameters")
    assert part(amp.gpus[1], "activations") < part(wide.gpus[1], "activations")


def test_inference_keeps_nothing_for_a_backward_pass():
    report = predict_memory(gpus=2, model="cnn", training=Training(inference=True))
    assert [part(gpu, name) for gpu in report.gpus for name in ("gradients", "optimizer state")] == [0] * 4
    assert report.training.loss == "none"
    assert {gpu.phase for gpu in report.gpus} <= {"scatter", "replicate", "forward", "gather"}


def test_a_transformer_in_evaluation_is_counted_layer_by_layer():
    given = {"gpus": 1, "model": "transformer", "batch_size": 600}
    evaluated = predict_memory(training=Training(inference=True), **given).gpus[0]
    # the inner matrix of a layer, 32 wide, beside what goes in and comes out, 16 wide
    assert part(evaluated, "temporaries") >= 600 * 8 * (32 + 16 + 16) * 4
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_phase_of_a_peak_is_the_step_that_made_it():
    big_model = predict_memory(gpus=1, input_size=4000, output_size=1000, batch_size=2)
    assert big_model.gpus[0].phase == "optimizer step"
    big_output = predict_memory(
        gpus=2, input_size=10, output_size=10**6, batch_size=50, training=Training("sgd", "cross-entropy")
    )
    assert big_output.gpus[0].phase in {"loss", "backward"}


class Tied(nn.Module):
    """Two layers that share their weight."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 64), nn.Linear(64, 64)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x))


class Reads(nn.Module):
    """A model that looks at its numbers."""

    def forward(self, x):
        return x if x.sum().item() > 0 else -x


class AsksForItsDtype(nn.Module):
    """A model that converts its input to the dtype of its parameters, of which a replica has none."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, x):
        return self.layer(x.to(next(self.parameters()).dtype))


class Dictates(nn.Module):
    """A model with two named inputs, whose output has its own loss."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16)

    def forward(self, ids, mask=None):
        rows = self.embedding(ids).mean(-1).masked_fill(mask, 0)
        return {"loss": rows.mean().unsqueeze(0), "rows": rows}


def tied_with_inputs():
    return Tied(), torch.ones(12, 64)


def tied_with_a_function():
    return Tied(), lambda size: torch.ones(size, 64)


def fails():
    raise OSError("no weights here")


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(__import__("pathlib").Path(__file__).parent))


def test_tied_weights_count_once():
    report = predict_memory(gpus=2, model="test_predicted_memory:Tied", inputs=["8x64"], batch_size=8)
    assert report.num_parameters == 64 * 64 + 2 * 64
    assert part(report.gpus[0], "parameters") == blocks(4 * 64 * 64) + 2 * 512


def test_inputs_may_be_named_and_typed_and_take_the_batch_size():
    report = predict_memory(
        gpus=2,
        model="test_predicted_memory:Dictates",
        inputs=["ids=8x16:int64", "mask=8x16:bool"],
        batch_size=64,
    )
    assert report.inputs == (("ids", (64, 16)), ("mask", (64, 16)))
    assert report.training.loss == "output.loss"
    assert part(report.gpus[1], "inputs") == 32 * 16 * 8 + 32 * 16


def test_inputs_may_come_from_a_function_of_the_batch_size():
    report = predict_memory(
        gpus=2, model="test_predicted_memory:Tied", inputs=lambda size: torch.zeros(size, 64), batch_size=20
    )
    assert report.inputs == (("0", (20, 64)),)


@pytest.mark.parametrize(
    ("factory", "given", "rows"),
    [
        ("tied_with_inputs", {}, 12),
        ("tied_with_inputs", {"batch_size": 50}, 50),
        ("tied_with_inputs", {"inputs": ["8x64"], "batch_size": 8}, 8),
        ("tied_with_a_function", {"batch_size": 9}, 9),
    ],
)
def test_a_factory_may_return_inputs_beside_its_model(factory, given, rows):
    report = predict_memory(gpus=2, model=f"test_predicted_memory:{factory}", **given)
    assert report.batch_size == rows
    assert report.inputs == (("0", (rows, 64)),)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2)), "6x3x32x32"),
        (lambda: nn.Embedding(9, 4), "6x16:int64<9"),
        (lambda: nn.Linear(7, 2), "6x7"),
    ],
)
def test_a_missing_input_is_inferred_from_the_first_layer_and_reported(model, given, monkeypatch):
    monkeypatch.setattr("dpdemo.memory.inputs.load_with_inputs", lambda *_: (model(), None))
    report = predict_memory(model="own:net", gpus=2, batch_size=6)
    assert report.notes == (f"--input {given}, inferred from the first layer.",)
    said = predict_memory(model="own:net", gpus=2, inputs=[given], batch_size=6)
    assert (report.inputs, report.gpus, said.notes) == (said.inputs, said.gpus, ())


def test_an_example_of_any_batch_size_takes_no_memory():
    given = {"gpus": 2, "model": "test_predicted_memory:tied_with_inputs"}
    assert predict_memory(batch_size=10**10, **given).gpus[0].peak_bytes > 10**12


def test_a_dtype_is_that_of_a_users_model_too():
    given = {"gpus": 1, "model": "test_predicted_memory:Tied", "inputs": ["8x64:bfloat16"], "batch_size": 8}
    report = predict_memory(**given, dtype="bfloat16")
    assert part(report.gpus[0], "parameters") == 2 * 64 * 64 + 2 * 512


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "expected a number of GPUs, got none - at argument `gpus`"),
        ({"gpus": "all"}, "expected a number of virtual GPUs, got `all`"),
        ({"gpus": 129}, "expected a whole number of at most 128, got 129"),
        ({"gpus": 2, "gpu_memory": ["1GiB"] * 3}, r"one for each of the 2 GPUs, got 3 sizes - at argument"),
        ({"gpus": 2, "gpu_memory": "lots"}, "expected a size such as 24GiB or 512MiB, got 'lots'"),
        ({"gpus": 2, "model": "test_predicted_memory:fails"}, "OSError: no weights here"),
        ({"gpus": 2, "inputs": ["5"], "dim": 1}, "expected a shape with a dimension 1, got 5"),
        ({"gpus": 2, "inputs": lambda _: 1 / 0}, "expected inputs for a batch of 30, got ZeroDivisionError"),
        ({"gpus": 2, "training": Training(loss="no.such:loss")}, "expected an importable module `no.such`"),
    ],
)
def test_what_cannot_be_is_told(given, message):
    with pytest.raises(UsageError, match=message):
        predict_memory(**given)


@pytest.mark.parametrize("given", [{"optimizer": "AdamW"}, {"zero_grad": "never"}, {"loss": "cross_entropy"}])
def test_an_unknown_setting_of_a_training_step_is_refused(given):
    ((key, value),) = given.items()
    with pytest.raises(UsageError, match=f"^expected .*, got '{value}' - at argument `{key}`$"):
        Training(**given)


def test_an_operator_that_needs_numbers_is_named():
    with pytest.raises(RunError, match=r"Tensor\.item.*storage=\"cpu\"") as error:
        predict_memory(gpus=2, model="test_predicted_memory:Reads", inputs=["8x64"])
    assert "test_predicted_memory.py" in str(error.value)


def test_reading_a_replicas_parameters_is_an_error_with_a_remedy():
    given = {"model": "test_predicted_memory:AsksForItsDtype", "inputs": ["8x64"]}
    with pytest.raises(RunError, match=r"StopIteration in replica 0") as error:
        predict_memory(gpus=2, **given)
    assert "gpus=1 predicts it" in error.value.hint
    assert predict_memory(gpus=1, **given).gpus[0].peak_bytes > 0


def test_the_workspaces_are_those_of_the_forward_and_the_backward_thread():
    assert Hardware().workspaces(inference=False) == [32 * 2**20] * 2
    assert Hardware(card="A100-80GB").workspaces(inference=True) == [8_519_680]
    assert Hardware(card="B200").workspaces(inference=False) == [32 * 2**20] * 2


def test_a_gpu_that_is_named_twice_is_one_gpu_with_the_rows_of_both():
    report = predict_memory(gpus=[0, 0, 1], batch_size=30, gpu_memory=["1GiB", "2GiB"])
    assert [gpu.device for gpu in report.gpus] == ["cuda:0", "cuda:1"]
    assert tuple(gpu.rows for gpu in report.gpus) == (20, 10)
    assert [gpu.capacity_bytes for gpu in report.gpus] == [2**30, 2**31]


@pytest.mark.slow
def test_gradients_that_are_kept_are_there_when_the_backward_pass_begins():
    given = {"gpus": 1, "model": "test_fitting:Deep", "inputs": ["65536x64"], "batch_size": 65536}
    peaks = {
        when: predict_memory(training=Training("none", zero_grad=when), **given).gpus[0].peak_bytes
        for when in ("before", "after", "to-zero")
    }
    weights = predict_memory(**given).num_parameters * 4
    assert peaks["before"] <= peaks["after"] <= peaks["to-zero"]
    assert peaks["to-zero"] - peaks["before"] > 0.7 * weights


def test_an_index_of_a_spec_is_valid_and_a_mask_masks_nothing():
    report = predict_memory(
        gpus=2,
        batch_size=8,
        model="test_predicted_memory:LooksAtItsMask",
        inputs=["ids=8x16:int64", "mask=8x16:int64"],
    )
    assert report.inputs == (("ids", (8, 16)), ("mask", (8, 16)))


class LooksAtItsMask(nn.Module):
    """A model that does without its mask where nothing is masked."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16)

    def forward(self, ids, mask):
        rows = self.embedding(ids)
        return rows if mask.all() else rows[mask.bool()].nonzero()


def test_convolutions_take_scratch_on_cards_without_tensor_cores_for_float32():
    given = {
        "gpus": 1,
        "model": "test_predicted_memory:Convolves",
        "inputs": ["4x256x32x32"],
        "batch_size": 4,
    }
    named = {card: predict_memory(gpu=card, **given).gpus[0] for card in ("V100-16GB", "A100-40GB")}
    tiles = 4 * 8 * 8
    assert part(named["V100-16GB"], "cuDNN scratch") == blocks(4 * 36 * (tiles * 512 + 256 * 256))
    copies = 2 * 4 * 256 * 32 * 32 + 9 * 256 * 256
    assert part(named["A100-40GB"], "cuDNN scratch") == blocks(4 * copies)


class Convolves(nn.Module):
    """One convolution of many channels."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(256, 256, 3, padding=1)

    def forward(self, x):
        return self.conv(x)
