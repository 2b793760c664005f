"""The JSON schemas of the config and of all that is written as JSON, made from their types."""

from typing import Any, Literal

import pydantic

from dpdemo.config import Config
from dpdemo.recording import RecordingFile
from dpdemo.render.checks.jsonform import CheckJson
from dpdemo.render.contrastjson import ComparisonJson
from dpdemo.render.devicesjson import DevicesJson
from dpdemo.render.executedjson import ExecJson
from dpdemo.render.explainedjson import ExplanationJson
from dpdemo.render.memory.wire import MemoryReportJson
from dpdemo.render.replayedjson import ReplayJson
from dpdemo.render.wire import ReportJson

Form = Literal[
    "config", "report", "check", "memory", "exec", "explain", "record", "replay", "compare", "devices"
]
"""The config, the report of simulate and run, or what the command of this name writes."""

FORMS: dict[Form, Any] = {
    "config": Config,
    "report": ReportJson,
    "check": CheckJson,
    "memory": MemoryReportJson,
    "exec": ExecJson,
    "explain": ExplanationJson,
    "record": RecordingFile,
    "replay": ReplayJson,
    "compare": ComparisonJson,
    "devices": DevicesJson,
}


def schema_of(form: Form) -> dict[str, Any]:
    """Make the JSON schema of a form."""
    return pydantic.TypeAdapter(FORMS[form]).json_schema()
