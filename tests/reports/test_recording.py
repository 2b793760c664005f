"""Recordings: checksums held against NumPy and hand-made chunks, replays, and what tampering is found."""

import copy
import hashlib
import json
import math
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import dpdemo
from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.config.catalogue import MODELS
from dpdemo.config.load import make_config
from dpdemo.models.modules import Placement, build
from dpdemo.replaying.checksum import SAMPLES, record_tensor
from dpdemo.reports.recording import SCHEMA, load_recording
from dpdemo.running.epoch import make_loader

NUM_GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
needs_gpu = pytest.mark.skipif(NUM_GPUS == 0, reason="no CUDA GPU is visible on this machine")
needs_no_gpu = pytest.mark.skipif(NUM_GPUS > 0, reason="a CUDA GPU is visible on this machine")

CHECKED_IN = sorted((Path(__file__).parent.parent / "recordings").glob("*.json"))
"""What three virtual GPUs did with the first batch of each model, by torch 2.13.0."""


OWN_MODELS = """
from torch import nn

class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("no")

class Drops(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x)
"""


@pytest.fixture
def own_models(tmp_path, monkeypatch):
    (tmp_path / "recorded_models.py").write_text(OWN_MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("recorded_models", None)


def recorded(**config):
    return dpdemo.record(virtual=NUM_GPUS == 0, **config)


@pytest.fixture(scope="module")
def tutorial():
    """The tutorial on three virtual GPUs, on the CPU alone where a real one is visible."""
    return dpdemo.record(gpus=3 if NUM_GPUS == 0 else [0, 0, 0], virtual=NUM_GPUS == 0)


@pytest.fixture
def saved(tutorial, tmp_path):
    path = tmp_path / "r.json"
    tutorial.save(path)
    return path


def tensor_of(batch, what):
    (found,) = [tensor for tensor in batch.tensors if tensor.what == what]
    return found


class TestChecksums:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool])
    def test_the_hash_is_that_of_the_bytes(self, dtype):
        tensor = (torch.arange(60).reshape(5, 12) % 7 - 3).to(dtype)
        expected = hashlib.sha256(np.ascontiguousarray(tensor.numpy()).tobytes()).hexdigest()
        assert record_tensor("x", tensor).sha256 == expected

    def test_a_view_is_hashed_by_its_own_values_in_their_order(self):
        tensor = torch.arange(12.0).reshape(3, 4).t()
        assert record_tensor("x", tensor).sha256 == record_tensor("x", tensor.contiguous()).sha256
        assert record_tensor("x", tensor).sha256 != record_tensor("x", tensor.t()).sha256

    def test_the_moments_are_sum_magnitudes_and_the_largest(self):
        found = record_tensor("x", torch.tensor([1.5, -4.0, 2.0]))
        assert (found.sum, found.abs_sum, found.max_abs) == (-0.5, 7.5, 4.0)
        assert found.sample == (1.5, -4.0, 2.0)

    def test_a_large_tensor_has_a_sample_of_its_values_at_the_same_places_each_time(self):
        tensor = torch.arange(10_000.0)
        found = record_tensor("x", tensor)
        assert len(found.sample) == SAMPLES
        assert record_tensor("x", tensor + 1).sample == tuple(value + 1 for value in found.sample)
        assert len(set(found.sample)) > SAMPLES // 2

    def test_what_is_no_finite_number_is_a_word(self):
        found = record_tensor("x", torch.tensor([math.nan, math.inf, -math.inf]))
        assert found.sample == ("nan", "inf", "-inf")
        json.loads(found.model_dump_json())

    @pytest.mark.parametrize(
        "tensor", [torch.empty(0, 5), torch.tensor(2 + 1j), torch.tensor(3.0).bfloat16()]
    )
    def test_empty_complex_and_half_tensors_can_be_recorded(self, tensor):
        found = record_tensor("x", tensor)
        assert found.shape == tuple(tensor.shape)
        assert len(found.sample) == (torch.view_as_real(tensor) if tensor.is_complex() else tensor).numel()

    @given(st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=8))
    @settings(max_examples=50)
    def test_floats_are_written_exactly(self, values):
        found = record_tensor("x", torch.tensor(values))
        again = json.loads(found.model_dump_json())
        assert [float(value) for value in again["sample"]] == values


@needs_no_gpu
class TestWhatIsRecorded:
    def test_the_split_the_devices_and_the_order(self, tutorial):
        first, last = tutorial.batches[0], tutorial.batches[-1]
        chunks = [tensor for tensor in last.tensors if tensor.what.startswith("chunk")]
        assert [chunk.shape for chunk in chunks] == [(4, 5), (4, 5), (2, 5)]
        assert [chunk.device for chunk in chunks] == ["cuda:0", "cuda:1", "cuda:2"]
        assert [tensor.what for tensor in first.tensors] == [
            "input", "chunk 0", "output of replica 0", "chunk 1", "output of replica 1", "chunk 2",
            "output of replica 2", "output", "loss", "gradient of weight", "gradient of bias",
        ]  # fmt: skip
        assert (tutorial.epoch_batches, tutorial.virtual) == (4, True)

    @pytest.mark.parametrize("number", [1, 4])
    def test_the_numbers_are_those_of_the_same_chunks_done_by_hand(self, number):
        found = recorded(gpus=3, dtype="float64").batches[number - 1]
        config = make_config({"dtype": "float64"})
        cpu = torch.device("cpu")
        model = build(config, Placement(nn.DataParallel, cpu, cpu)).split
        batch = list(make_loader(config))[number - 1]
        output = torch.cat([model(chunk) for chunk in batch.chunk(3)])
        loss = output.pow(2).mean()
        loss.backward()
        for i, chunk in enumerate(batch.chunk(3)):
            assert tensor_of(found, f"chunk {i}").sha256 == record_tensor("", chunk).sha256
        for what, tensor in {"output": output, "loss": loss, "gradient of weight": model.weight.grad}.items():
            expected, got = record_tensor(what, tensor), tensor_of(found, what)
            assert got.abs_sum == pytest.approx(expected.abs_sum, *tolerance_of("float64"))
            assert got.sample == pytest.approx(expected.sample, *tolerance_of("float64"))

    def test_batchnorms_buffers_after_each_forward_are_in_it(self):
        found = recorded(gpus=2, model="cnn")
        counts = [tensor_of(batch, "buffer 1.num_batches_tracked").sum for batch in found.batches]
        assert counts == [1, 2, 3, 4]

    def test_the_parameters_of_a_wrapped_part_have_the_models_names(self):
        names = [tensor.what for tensor in recorded(gpus=2, model="partial").weights]
        assert "parameter block2.weight" in names
        assert not [name for name in names if "module" in name]

    @pytest.mark.parametrize(("batches", "expected"), [(1, 1), (3, 3), (9, 4)])
    def test_it_holds_the_first_batches_and_no_more(self, batches, expected):
        assert len(recorded(gpus=2, batches=batches).batches) == expected

    def test_no_batches_are_an_error(self):
        with pytest.raises(dpdemo.UsageError, match="expected 1 or more batches, got 0"):
            dpdemo.record(batches=0)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
    def test_other_types_of_numbers_can_be_recorded_and_repeated(self, dtype):
        found = recorded(gpus=2, dtype=dtype, batches=2)
        assert tensor_of(found.batches[0], "output").dtype == dtype
        assert dpdemo.replay(found).verdict == "identical"

    @pytest.mark.usefixtures("own_models")
    def test_random_numbers_come_from_the_configs_seed(self):
        found = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            found.append(recorded(gpus=2, model="recorded_models:Drops", batches=2))
        assert found[0] == found[1]
        outputs = [tensor_of(batch, "output").abs_sum for batch in found[0].batches]
        assert 0 < outputs[0] < tensor_of(found[0].batches[0], "input").abs_sum * 2

    def test_the_global_generator_and_tf32_are_left_as_they_were(self, monkeypatch):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        dpdemo.replay(recorded(gpus=2))
        assert torch.equal(torch.rand(3), expected)
        assert torch.backends.cudnn.allow_tf32


@needs_no_gpu
class TestReplay:
    @pytest.mark.parametrize("model", MODELS)
    def test_a_saved_recording_is_read_back_and_repeated_exactly(self, model, tmp_path):
        found = recorded(gpus=[2, 0, 1], output_device=1, model=model, batches=2)
        found.save(tmp_path / "r.json")
        assert load_recording(tmp_path / "r.json") == found
        outcome = dpdemo.replay(tmp_path / "r.json")
        assert (outcome.verdict, outcome.first, outcome.virtual) == ("identical", None, True)
        assert outcome.num_tensors == found.num_tensors

    @given(
        model=st.sampled_from([model for model in MODELS if model != "cnn"]),
        gpus=st.lists(st.integers(0, 3), min_size=1, max_size=4),
        output_device=st.none() | st.integers(0, 4),
        dim=st.integers(0, 1),
        batch_size=st.integers(1, 9),
        shuffle=st.booleans(),
    )
    @settings(max_examples=25)
    def test_every_config_is_repeated_exactly(self, **config):
        outcome = dpdemo.replay(recorded(data_size=10, batches=2, **config))
        assert (outcome.verdict, outcome.first) == ("identical", None)

    @pytest.mark.parametrize("model", MODELS)
    def test_one_device_in_place_of_three_is_equal_to_round_off(self, model):
        outcome = dpdemo.replay(recorded(gpus=3, model=model, batches=2), gpus=[0, 0, 0])
        if outcome.first is not None:  # as on a real GPU: replicas share what is alone of its type
            assert outcome.first.what == "buffer 1.num_batches_tracked"
            assert float(outcome.first.got) == 3 * float(outcome.first.expected)
        else:
            assert outcome.verdict in {"identical", "equal to round-off"}
        assert list(outcome.devices) == ["cuda:0"] * 3

    @pytest.mark.parametrize(("gpus", "output_device"), [([3, 1], 1), ([3, 1], 3), ([0, 1], 2)])
    def test_the_output_moves_along_when_others_stand_in(self, gpus, output_device):
        found = recorded(gpus=gpus, output_device=output_device, batches=1)
        assert dpdemo.replay(found, gpus=[1, 0]).first is None

    @pytest.mark.parametrize("path", CHECKED_IN, ids=lambda path: path.stem)
    def test_what_another_machine_recorded_is_repeated_here(self, path):
        assert dpdemo.replay(path).first is None

    def test_there_is_a_recording_of_each_model(self):
        assert {path.stem for path in CHECKED_IN} == set(MODELS)

    def test_what_the_cpu_did_can_be_repeated_on_a_gpu(self):
        found = dpdemo.record(model="hybrid")
        assert dpdemo.replay(found).devices.kind == "cpu"
        on_gpu = dpdemo.replay(found, virtual=True)
        assert (on_gpu.verdict, list(on_gpu.devices)) == ("identical", ["cuda:0"])

    def test_another_number_of_gpus_is_an_error_with_the_next_step(self, tutorial):
        with pytest.raises(
            dpdemo.UsageError, match="expected 3 GPUs, one for each that was recorded, got 2"
        ) as caught:
            dpdemo.replay(tutorial, gpus=[0, 1])
        assert caught.value.hint == "name one as often as is needed: --gpus 0,0,0"

    def test_more_gpus_than_there_are_is_an_error_with_the_next_step(self, tutorial):
        with pytest.raises(
            dpdemo.UsageError, match=r"expected 3 visible GPUs, got 0 - at a recording, `config"
        ) as caught:
            dpdemo.replay(tutorial, virtual=False)
        assert caught.value.hint == "--virtual needs no GPU"

    def test_a_replica_that_computes_something_else_is_found_where_it_does(self, tutorial, monkeypatch):
        genuine = nn.functional.linear

        def wrong(x, *args):
            return genuine(x, *args) * (1.001 if x.get_device() == 1 else 1)

        monkeypatch.setattr(nn.functional, "linear", wrong)
        outcome = dpdemo.replay(tutorial)
        assert outcome.verdict == "different"
        assert (outcome.first.batch, outcome.first.what) == (1, "output of replica 1")
        assert outcome.first.relative == pytest.approx(1e-3, rel=0.5)

    def test_round_off_is_told_from_a_difference(self, tutorial, monkeypatch):
        genuine = nn.functional.linear
        monkeypatch.setattr(nn.functional, "linear", lambda x, *args: genuine(x, *args) * (1 + 2**-23))
        outcome = dpdemo.replay(tutorial)
        assert (outcome.verdict, outcome.first) == ("equal to round-off", None)
        assert 0 < outcome.largest.absolute <= outcome.largest.tolerance
        assert outcome.num_inexact < outcome.num_tensors

    def test_a_gradient_that_is_wrong_is_named(self, tutorial, monkeypatch):
        genuine = torch.autograd.backward

        def doubled(loss):
            genuine(loss * 2)

        monkeypatch.setattr(torch.autograd, "backward", doubled)
        assert dpdemo.replay(tutorial).first.what == "gradient of weight"


def numbers_in(value, path=()):
    """Every number and hash in the tensors of a recording, by its path in the JSON."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in numbers_in(item, (*path, key))]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in numbers_in(item, (*path, index))]
    is_tampered = path[-1] in {"sum", "abs_sum", "max_abs"} or {"sample", "shape"} & set(path)
    return [path] if is_tampered and path[0] in {"weights", "batches"} else []


@needs_no_gpu
class TestTampering:
    @given(data=st.data())
    @settings(max_examples=40)
    def test_one_changed_number_is_named_and_nothing_else(self, tutorial, tmp_path_factory, data):
        whole = json.loads(saved_text(tutorial, tmp_path_factory))
        path = data.draw(st.sampled_from(numbers_in(whole)))
        *parents, last = path
        place = whole
        for part in parents:
            place = place[part]
        place[last] += 1
        tampered = tmp_path_factory.mktemp("tampered") / "r.json"
        tampered.write_text(json.dumps(whole))

        outcome = dpdemo.replay(tampered)
        tensors = whole["weights"] if path[0] == "weights" else whole["batches"][path[1]]["tensors"]
        assert outcome.verdict == "different"
        assert outcome.first.batch == (0 if path[0] == "weights" else path[1] + 1)
        assert outcome.first.what == tensors[path[1] if path[0] == "weights" else path[3]]["what"]
        field = f"sample[{last}]" if "sample" in path else "shape" if "shape" in path else last
        assert outcome.first.field == field

    def test_a_changed_hash_alone_is_named_as_other_bytes(self, saved):
        whole = json.loads(saved.read_text())
        tensor = whole["batches"][1]["tensors"][7]
        tensor["sha256"] = "0" * 64
        saved.write_text(json.dumps(whole))
        outcome = dpdemo.replay(saved)
        assert (outcome.verdict, outcome.num_inexact) == ("equal to round-off", 1)
        assert (outcome.largest.batch, outcome.largest.what, outcome.largest.field) == (2, "output", "sha256")

    def test_a_tensor_left_out_is_named(self, saved):
        whole = json.loads(saved.read_text())
        del whole["batches"][0]["tensors"][1]
        saved.write_text(json.dumps(whole))
        first = dpdemo.replay(saved).first
        assert (first.batch, first.field) == (1, "tensor")
        assert (first.expected, first.got) == ("output of replica 0", "chunk 0")

    def test_another_seed_differs_from_the_first_weight_on(self, tutorial):
        first = dpdemo.replay(tutorial.model_copy(update={"config": {**tutorial.config, "seed": 1}})).first
        assert (first.batch, first.what) == (0, "parameter weight")


def saved_text(recording, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "r.json"
    recording.save(path)
    return path.read_text()


def changed(whole, path, value):
    *parents, last = path
    place = whole = copy.deepcopy(whole)
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return json.dumps(whole)


@needs_no_gpu
class TestDamage:
    @pytest.mark.parametrize(
        ("path", "value", "message"),
        [
            (
                ["schema"],
                "dpdemo.recording/2",
                r"expected schema dpdemo\.recording/1, got 'dpdemo\.recording/2'",
            ),
            (["schema"], None, r"expected a recording with the key `schema`, got none - at .*r\.json"),
            (["extra"], 1, r"expected a known key, got `extra` - at .*r\.json"),
            (["batches", 1, "tensors", 2, "mean"], 1, r"got `batches\[1\]\.tensors\[2\]\.mean` - at"),
            (["weights", 0, "sum"], None, r"expected the key `weights\[0\]\.sum`, got none"),
            (["weights", 0, "sha256"], "abc", r"got 'abc' \(text\) - at .*r\.json, `weights\[0\]\.sha256`"),
            (["weights", 0, "sum"], "many", r"got 'many' \(text\) - at .*r\.json, `weights\[0\]\.sum`"),
            (
                ["weights", 0, "shape", 0],
                -1,
                r"greater than or equal to 0, got -1 - at .*`weights\[0\]\.shape\[0\]`",
            ),
            (["batches", 1, "number"], 7, r"expected batch 2, got 7 - at .*r\.json, `batches\[1\]\.number`"),
            (["batches"], [], r"at least 1 item.*got \[\] - at .*r\.json, `batches`"),
            (
                ["config", "batch_size"],
                0,
                r"expected a whole number of 1 or more, got 0 - at .*`config`, key",
            ),
            (
                ["config", "gpus"],
                "all",
                r"expected a list of ordinals, got all - at .*r\.json, `config\.gpus`",
            ),
            (["virtual"], 1, r"expected boolean, got 1 - at .*r\.json, `virtual`"),
        ],
    )
    def test_a_damaged_recording_says_expected_got_and_where(self, path, value, message, saved):
        saved.write_text(changed(json.loads(saved.read_text()), path, value))
        with pytest.raises(dpdemo.UsageError, match=message) as caught:
            dpdemo.replay(saved)
        assert caught.value.exit_code == 2

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"got a file that cannot be read as JSON \(Expecting value: line 1 column 1"),
            ("[1, 2]", "expected a recording with the key `schema`, got none"),
            ('{"schema": NaN}', "NaN is not JSON"),
            ("[" * 100_000, "cannot be read as JSON"),
        ],
    )
    def test_a_file_that_is_no_recording_is_refused(self, text, message, tmp_path):
        (tmp_path / "r.json").write_text(text)
        with pytest.raises(dpdemo.UsageError, match=message):
            load_recording(tmp_path / "r.json")

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
    def test_a_file_cut_short_is_refused(self, share, saved):
        text = saved.read_text()
        saved.write_text(text[: int(len(text) * share)])
        with pytest.raises(dpdemo.UsageError, match="cannot be read as JSON"):
            load_recording(saved)

    def test_bytes_that_are_no_text_and_a_file_that_is_not_there_are_refused(self, tmp_path):
        (tmp_path / "r.json").write_bytes(b"\xff\xfe\x00")
        for name in ("r.json", "none.json", "."):
            with pytest.raises(
                dpdemo.UsageError, match=r"expected a recording, got a file that cannot be read"
            ):
                load_recording(tmp_path / name)

    def test_an_interrupted_save_leaves_the_old_file(self, saved, tutorial, monkeypatch):
        before = saved.read_text()

        def interrupt(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tutorial.model_copy(update={"torch": "0"}).save(saved)
        assert saved.read_text() == before
        assert list(saved.parent.iterdir()) == [saved]


def test_the_schema_has_its_version():
    assert SCHEMA == "dpdemo.recording/1"


@needs_no_gpu
@pytest.mark.usefixtures("own_models")
def test_a_users_forward_that_fails_names_the_batch_the_replica_and_the_line():
    with pytest.raises(
        dpdemo.RunError, match=r"expected to record batch 1 of the model .* in replica 0"
    ) as caught:
        dpdemo.record(model="recorded_models:Fails", gpus=2, virtual=True)
    assert "recorded_models.py:6 in forward" in str(caught.value)


@needs_gpu
class TestOnRealGPUs:
    @pytest.mark.parametrize("model", MODELS)
    def test_one_card_three_times_repeats_itself(self, model):
        outcome = dpdemo.replay(dpdemo.record(gpus=[0, 0, 0], model=model, batches=2))
        assert outcome.verdict in {"identical", "equal to round-off"}

    @pytest.mark.parametrize(
        "recording", sorted((Path(__file__).parent.parent / "recordings").glob("*.json")), ids=str
    )
    def test_what_virtual_gpus_did_is_what_a_real_one_does(self, recording):
        count = len(load_recording(recording).config["gpus"])
        outcome = dpdemo.replay(recording, gpus=[0] * count)
        # replicas on the model's own GPU share with it a tensor that is alone of its type: each counts
        is_shared = outcome.first is not None and "num_batches_tracked" in outcome.first.what
        assert is_shared or outcome.verdict in {"identical", "equal to round-off"}, outcome.first
