"""The JSON schemas of the config and of all that is written as JSON, made from their types."""

from collections.abc import Callable
from typing import Literal

from dpdemo.config.fields import Config
from dpdemo.reports.check import CheckReport
from dpdemo.reports.comparison import Comparison
from dpdemo.reports.diagnosis import Diagnosis
from dpdemo.reports.execution import ExecReport
from dpdemo.reports.explanation import Explanation
from dpdemo.reports.memory import MemoryReport
from dpdemo.reports.recording import RecordingFile
from dpdemo.reports.replay import Replay
from dpdemo.reports.speedup import SpeedupReport
from dpdemo.reports.split import SplitReport
from dpdemo.reports.sweep import SweepReport
from dpdemo.reports.visible import VisibleDevices

Form = Literal[
    "config", "report", "simulate", "run", "sweep", "check", "memory", "speedup", "exec", "explain", "record",
    "replay", "compare", "devices", "doctor",
]  # fmt: skip
"""The config, the report of simulate and run, or what the command of this name writes."""

FORMS: dict[Form, Callable[[], dict[str, object]]] = {
    "config": Config.model_json_schema,
    "report": SplitReport.json_schema,
    "simulate": SplitReport.json_schema,
    "run": SplitReport.json_schema,
    "sweep": SweepReport.json_schema,
    "check": CheckReport.json_schema,
    "memory": MemoryReport.json_schema,
    "speedup": SpeedupReport.json_schema,
    "exec": ExecReport.json_schema,
    "explain": Explanation.json_schema,
    "record": RecordingFile.model_json_schema,
    "replay": Replay.json_schema,
    "compare": Comparison.json_schema,
    "devices": VisibleDevices.json_schema,
    "doctor": Diagnosis.json_schema,
}


def schema_of(form: Form) -> dict[str, object]:
    """Make the JSON schema of a form."""
    return FORMS[form]()
