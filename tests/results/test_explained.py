"""The picture of an explanation, its sentences and its JSON."""

import math

import pytest
from jsonforms import read_json
from samples import drawn

from dpdemo.config.fields import Config
from dpdemo.results.devices import Devices
from dpdemo.results.explanation import Explanation, ModuleSize, Move, Part, PlainCall, Step, same_as_plain
from dpdemo.results.lessons import with_lessons


def explanation(rows, *, devices=None, out=0, **plain):
    """Put an explanation together as it is seen for a linear layer, with chunks of these rows."""
    num = len(rows) if devices is None else devices
    ids = range(num)
    chunks = tuple(Part(f"chunk {i}", f"cuda:{i}", (("", (n, 5)),), 1, 20 * n) for i, n in enumerate(rows))
    outputs = tuple(Part(f"output {i}", f"cuda:{i}", (("", (n, 2)),), 1, 8 * n) for i, n in enumerate(rows))
    copies = tuple(Part(f"replica {i}", f"cuda:{i}", (), 2, 48) for i in range(len(rows)))
    whole = Part("input", "cuda:0", (("", (sum(rows), 5)),), 1, 20 * sum(rows))
    module = Part("module", "cuda:0", (), 2, 48)
    result = Part("output", f"cuda:{out}", (("", (sum(rows), 2)),), 1, 8 * sum(rows))

    def away(parts):
        return tuple(Move("cuda:0", part.device, part.num_bytes) for part in parts[1:])

    home = tuple(Move(o.device, result.device, o.num_bytes) for o in outputs if o.device != result.device)
    steps = (
        Step("scatter", "scatter(input, ids, dim=0)", (whole,), chunks, away(chunks)),
        Step("replicate", "replicate(module, ids)", (module,), copies, away(copies)),
        Step("parallel_apply", "parallel_apply(replicas, chunks)", chunks, outputs, ()),
        Step("gather", f"gather(outputs, {out}, dim=0)", outputs, (result,), home),
    )
    shown = {"difference": 0.0, "scale": 1.5, "dtype": "float32", "device": "cuda:0"}
    return with_lessons(
        Explanation(
            config=Config(gpus=num, batch_size=sum(rows), output_device=out or None),
            devices=Devices.of("cuda", ids),
            wrapped="",
            virtual=True,
            batch_size=sum(rows),
            module=ModuleSize(2, 48, 0, 0),
            steps=steps,
            idle=Devices.of("cuda", range(len(rows), num)),
            plain=PlainCall(**{**shown, **plain}),
        )
    )


def test_three_gpus_look_like_this(golden):
    golden("explained-80.txt", drawn(explanation([10, 10, 10])))


def test_eight_gpus_share_lines(golden):
    golden("explained-idle.txt", drawn(explanation([2] * 5, devices=8)))


@pytest.mark.parametrize(
    ("rows", "devices", "said"),
    [
        ([10, 10, 10], 3, "torch.chunk makes chunks of ceil(30 / 3) = 10 rows, 3 chunks in all."),
        (
            [4, 4, 2],
            3,
            "torch.chunk makes chunks of ceil(10 / 3) = 4 rows; the last one has the 2 that are left.",
        ),
        ([3, 3, 3, 1], 4, "ceil(10 / 4) = 3 rows; the last one has the 1 that is left."),
        ([2] * 5, 8, "= 2 rows, 5 chunks in all. No rows are left for cuda:5–7: idle."),
        ([1], 4, "ceil(1 / 4) = 1 row, 1 chunk in all. No rows are left for cuda:1–3: idle."),
    ],
)
def test_scatter_names_the_rule_that_it_followed(rows, devices, said):
    found = explanation(rows, devices=devices)
    assert said in found.steps[0].lesson


def test_scatter_names_no_rule_that_it_broke():
    found = explanation([15, 10, 5])
    said = found.steps[0].lesson
    assert "torch.chunk" not in said
    assert "The 30 rows were cut into 3 chunks: 15 + 10 + 5." in said


def test_gather_names_its_device_and_adds_up_the_rows():
    found = explanation([4, 4, 2], out=2)
    assert found.steps[3].lesson == (
        "On cuda:2, the output_device, the outputs are joined along dimension 0: 4 + 4 + 2 = 10."
    )


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({}, "equal to module(input) on cuda:0 to round-off: 0 apart at most"),
        ({"difference": 1e-7}, "equal to module(input) on cuda:0 to round-off: 1e-07 apart at most"),
        ({"dtype": "int64"}, "equal to module(input) on cuda:0, bit for bit"),
        ({"difference": 1.0, "dtype": "int64"}, "up to 1 from module(input) on cuda:0"),
        ({"scale": math.nan}, "equal to module(input) on cuda:0 to round-off: 0 apart at most"),
        ({"difference": 0.044}, "up to 0.044 from module(input) on cuda:0 (largest number 1.5)"),
        ({"difference": None}, "of other shapes than module(input) on cuda:0"),
    ],
)
def test_the_plain_call_is_compared_in_words(plain, said):
    assert same_as_plain(explanation([5, 5], **plain)).startswith(said)


def test_one_chunk_goes_through_the_kernels_of_a_plain_call():
    assert same_as_plain(explanation([5])) == "equal to module(input) on cuda:0, bit for bit"


def test_the_json_holds_every_step_with_its_sums():
    found = read_json("explain", drawn(explanation([10, 10, 10]), form="json"))
    assert found["schema"] == "dpdemo.explain/2"
    assert [step["name"] for step in found["steps"]] == ["scatter", "replicate", "parallel_apply", "gather"]
    for step in found["steps"]:
        assert step["moved_bytes"] == sum(move["num_bytes"] for move in step["moved"])
    assert found["steps"][0]["made"][1] == {
        "label": "chunk 1", "device": "cuda:1", "shapes": [10, 5], "num_tensors": 1, "num_bytes": 200
    }  # fmt: skip
    assert found["steps"][1]["made"][1]["shapes"] is None


@pytest.mark.parametrize("difference", [math.nan, math.inf, None])
def test_a_difference_of_nan_is_null_in_json(difference):
    text = drawn(explanation([5, 5], difference=difference), form="json")
    assert read_json("explain", text)["plain"]["difference"] is None
