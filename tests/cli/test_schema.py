"""`dpdemo schema`: what each command writes as JSON has the form that is published of it."""

import json
import re
import typing

import pytest
import torch
from jsonforms import keeps_to

from dpdemo.cli.group import COMMANDS
from dpdemo.config.fields import Config
from dpdemo.render.schemas import FORMS, Form

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is visible on this machine")

LOST_STATE = ["dpdemo.examples.pitfall:Net", "--gpus", "4", "--input", "32x8", "--input", "scale=1"]
WRITTEN = [
    ("simulate", ["simulate", "--gpus", "8", "--trace-sample", "17"]),
    ("report", ["simulate", "--gpus", "3", "--strategy", "ddp", "--verbose"]),
    ("run", ["run", "--virtual", "--gpus", "0,1,2"]),
    ("sweep", ["sweep", "--gpus", "1-3", "--batch-size", "4-6"]),
    ("sweep", ["sweep", "--of", "idle"]),
    ("check", ["check", *LOST_STATE]),
    ("explain", ["explain", "--virtual", "--gpus", "0,1,2"]),
    ("explain", ["explain"]),
    ("memory", ["memory", "--gpus", "3", "--gpu-memory", "1GiB"]),
    ("memory", ["memory", "--gpus", "2", "--gpu-memory", "100MiB", "--fit"]),
    ("compare", ["compare", "--gpus", "2"]),
    ("devices", ["devices"]),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_schema_is_printed_as_json(dpdemo, form):
    schema = json.loads(dpdemo("schema", form).out)
    assert (schema["type"], bool(schema["properties"])) == ("object", True)
    assert schema["description"]


def test_the_schema_of_the_config_describes_every_key(dpdemo):
    schema = json.loads(dpdemo("schema", "config").out)
    assert set(schema["properties"]) == set(Config.model_fields)
    assert all(part.get("description") for part in schema["properties"].values())


@pytest.mark.parametrize("form", [form for form in FORMS if form != "config"])
def test_every_form_names_itself_and_its_version(dpdemo, form):
    schema = json.loads(dpdemo("schema", form).out)
    assert re.fullmatch(r"dpdemo\.[a-z]+/[12]", schema["properties"]["schema"]["const"])
    assert "schema" in schema["required"]


def test_the_names_on_the_command_line_are_those_of_the_forms():
    assert typing.get_args(Form) == tuple(FORMS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_prints_json_has_its_schema(dpdemo, command):
    formats = re.search(r"--format\s.*?<([a-z|\s]+)>", dpdemo(command, "--help").out, re.DOTALL)
    if formats and "json" in formats[1]:
        assert command in FORMS


@needs_no_gpu
@pytest.mark.parametrize(("form", "command"), WRITTEN, ids=[" ".join(each) for _, each in WRITTEN])
def test_what_a_command_prints_keeps_to_its_schema(dpdemo, form, command):
    keeps_to(form, dpdemo(*command, "--format", "json").out)


@needs_no_gpu
def test_a_recording_and_its_replay_keep_to_their_schemas(dpdemo, tmp_path):
    path = tmp_path / "r.json"
    dpdemo("record", "--virtual", "--gpus", "0,1,2", path)
    whole = keeps_to("record", path.read_text())
    assert keeps_to("replay", dpdemo("replay", path, "-f", "json").out)["verdict"] == "identical"
    whole["batches"][1]["tensors"][7]["sum"] += 1
    path.write_text(json.dumps(whole))
    assert keeps_to("replay", dpdemo("replay", path, "-f", "json").out)["first"]["absolute"] > 0


def test_the_report_of_exec_keeps_to_its_schema(program, tmp_path):
    path = tmp_path / "report.json"
    program("exec", "--gpus", "3", "--report", path, "tests/tools/bench/tutorial.py")
    assert keeps_to("exec", path.read_text())["data_parallel"]


def test_a_key_too_many_too_few_or_of_another_type_does_not_keep_to_a_schema(dpdemo):
    """The check that the tests above make can fail."""
    found = json.loads(dpdemo("simulate", "--gpus", "3", "-f", "json").out)
    batch, *others = found["batches"]
    less = {key: value for key, value in batch.items() if key != "idle"}
    for wrong in ({**batch, "more": 1}, less, {**batch, "first": "1"}):
        with pytest.raises((AssertionError, ValueError)):
            keeps_to("report", json.dumps({**found, "batches": [wrong, *others]}))
