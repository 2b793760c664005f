"""The plain formats: exact, parsed back, and written as they go."""

import csv
import io
import json
import re

import pytest
from hypothesis import given
from jsonforms import read_json
from rich.console import Console
from samples import called, drawn, few_gpus, few_sizes, reports, returning_a_dict, simulated, write

few = reports(sizes=few_sizes, gpus=few_gpus)

SEED_CASES = {
    None: ([30], [10]),
    1: ([30], [10]),
    2: ([15, 15], [5, 5]),
    3: ([10, 10, 10], [4, 4, 2]),
    8: ([4, 4, 4, 4, 4, 4, 4, 2], [2, 2, 2, 2, 2]),
}


@pytest.mark.parametrize("gpus", SEED_CASES)
def test_transcript_has_the_tutorials_lines(gpus):
    full, last = SEED_CASES[gpus]
    expected = f"Let's use {gpus} GPUs!\n" if (gpus or 0) > 1 else ""
    for size, chunks in [(30, full)] * 3 + [(10, last)]:
        for rows in chunks:
            expected += (
                f"\tIn Model: input size torch.Size([{rows}, 5]) output size torch.Size([{rows}, 2])\n"
            )
        expected += f"Outside: input size torch.Size([{size}, 5]) output_size torch.Size([{size}, 2])\n"

    assert drawn(simulated(gpus=gpus), "transcript") == expected


def test_transcript_of_structures_names_their_tensors():
    line = drawn(returning_a_dict(), "transcript").splitlines()[1]

    assert line.endswith("output size {'logits': torch.Size([2, 3]), 'state[0]': torch.Size([1, 2, 9])}")


def test_transcript_shows_an_unknown_output_as_a_question_mark():
    lines = drawn(simulated(gpus=2, model="a:B"), "transcript").splitlines()

    assert lines[1] == "\tIn Model: input size torch.Size([15, 5]) output size ?"


def test_transcript_greets_for_devices_not_for_replicas():
    assert drawn(simulated(gpus=(0, 0)), "transcript").startswith("\tIn Model")


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_plain_formats_look_like_the_golden_files(form, golden):
    golden(f"linear-8.{form}", drawn(simulated(gpus=8), form))


@given(few)
def test_json_adds_up(report):
    data = read_json("report", drawn(report, "json"))

    assert data == json.loads(json.dumps(report.to_dict()))
    assert data["config"] == json.loads(json.dumps(report.config.to_dict()))
    assert data["devices"] == list(report.devices)
    samples = 0
    for batch in data["batches"]:
        rows = [entry["rows"] for entry in batch["in_model"]]
        assert sum(rows) == batch["batch_size"]
        assert [entry["replica"] for entry in batch["in_model"]] == list(range(len(rows)))
        assert [entry["device"] for entry in batch["in_model"]] + batch["idle"] == data["devices"]
        samples += batch["count"] * sum(rows)
    assert samples == data["totals"]["samples"]


def test_json_floats_have_at_most_six_digits():
    report = simulated(gpus=7, batch_size=20, data_size=95)

    for number in re.findall(r"\d+\.(\d+)", drawn(report, "json")):
        assert len(number) <= 6


def test_json_tells_tensors_structures_and_the_unknown_apart():
    entry = json.loads(drawn(returning_a_dict(), "json"))["batches"][0]["in_model"][0]
    unknown = json.loads(drawn(simulated(model="a:B"), "json"))["batches"][0]

    assert entry["output"] == {"logits": [2, 3], "state[0]": [1, 2, 9]}
    assert unknown["in_model"][0]["input"] == [30, 5]
    assert unknown["in_model"][0]["output"] is unknown["outside"]["output"] is None


@given(few)
def test_verbose_json_and_csv_list_every_batch(report):
    numbers = list(range(1, report.totals.batches + 1))
    batches = json.loads(drawn(report, "json", verbose=True))["batches"]
    lines = csv.DictReader(io.StringIO(drawn(report, "csv", verbose=True)))

    assert [batch["first"] for batch in batches] == numbers
    assert {batch["count"] for batch in batches} == {1}
    assert [int(line["first"]) for line in lines if line["view"] == "outside"] == numbers


@given(few)
def test_csv_adds_up(report):
    lines = list(csv.DictReader(io.StringIO(drawn(report, "csv"))))

    def samples(view):
        return sum(int(line["count"]) * int(line["rows"]) for line in lines if line["view"] == view)

    assert samples("in_model") == samples("outside") == report.totals.samples
    assert samples("idle") == 0
    for group in report.batches:
        mine = [line for line in lines if int(line["first"]) == group.first and line["view"] != "outside"]
        assert [line["device"] for line in mine] == list(report.devices)


def test_csv_has_stable_columns_and_crossed_shapes():
    head, line, *_, outside = drawn(returning_a_dict(), "csv").splitlines()

    assert head == ",".join(returning_a_dict().columns)
    assert line == "1,1,4,in_model,0,cuda:0,2,cuda:0,ids=2x7 mask=2x7,logits=2x3 state[0]=1x2x9"
    assert outside == "1,1,4,outside,,cuda:1,4,cpu,ids=4x7 mask=4x7,logits=4x3"


@pytest.mark.parametrize("verbose", [False, True])
@given(report=few)
def test_markdown_tables_have_one_width_and_add_up(verbose, report):
    samples = 0
    for part in drawn(report, "markdown", verbose=verbose).split("\n**Batch")[1:]:
        count = re.search(r"\((\d+)×\)", part.splitlines()[0])
        table = [line for line in part.splitlines() if line[0:1] == "|"]
        assert len({len(line) for line in table}) == 1
        for device, rows, *_ in ([cell.strip() for cell in line.split("|")[1:]] for line in table[2:]):
            times = re.search(r"× (\d+)$", device)
            each = 0 if rows == "idle" else int(rows)
            samples += int(count[1] if count else 1) * each * int(times[1] if times else 1)
    assert samples == report.totals.samples


def test_markdown_escapes_names_of_users():
    text = drawn(called("a|b:_x_<i>[y](z)"), "markdown")

    assert text.startswith("### Predicted: a\\|b:\\_x\\_\\<i>[y\\](z) over 2 GPUs\n")


@pytest.mark.parametrize("form", ["transcript", "json", "csv", "markdown"])
def test_an_endless_epoch_is_written_as_it_goes(form):
    class Closing(io.StringIO):
        def write(self, text):
            if self.tell() > 10_000:
                raise BrokenPipeError
            return super().write(text)

    report = simulated(gpus=3, data_size=10**9)
    with pytest.raises(BrokenPipeError):
        write(report, form, Console(file=Closing()), verbose=True)


@pytest.mark.parametrize("form", ["transcript", "json", "csv", "markdown"])
def test_plain_formats_are_never_wrapped_and_survive_an_ascii_terminal(form):
    report = simulated(gpus=20, model="módulo:Größe")

    assert drawn(report, form, width=10, encoding="ascii").isascii()
    assert drawn(report, form, width=10) == drawn(report, form, width=200)


def test_an_unknown_format_is_our_own_bug():
    with pytest.raises(ValueError, match="expected table, json, csv, markdown or transcript, got 'xml'"):
        drawn(simulated(), "xml")
