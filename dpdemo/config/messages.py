"""The answers to a config that is not valid: expected, got, where and the next step, for each key."""

import difflib
import re
from typing import get_args

import pydantic

from dpdemo.arithmetic.limits import MAX_GPUS, MAX_NODES
from dpdemo.config.catalogue import MODELS
from dpdemo.config.fields import INT64_MAX, Config, DType
from dpdemo.config.targets import FORMS
from dpdemo.errors import UsageError
from dpdemo.wording import Where, as_set_there, at, show, show_key, show_set


def unknown_key(key: str, place: str) -> UsageError:
    """Make the error for a key that is not in the config, naming the nearest one that is."""
    known = list(Config.model_fields)
    alike = key.lower().replace("-", "_")
    near = ["gpus"] if alike == "device_ids" else difflib.get_close_matches(alike, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(known)}"
    return UsageError(f"expected a known key, got {show_key(key)} - {place}", hint=hint)


def explain(error: pydantic.ValidationError, where: Where) -> UsageError:
    """Turn pydantic's first finding into expected, got, where, next step."""
    errors = error.errors(include_url=False, include_context=False)
    key = str(errors[0]["loc"][0])
    # A union reports each of its arms; the one that looked into the list knows the bad item
    for found in errors:
        place = next((part for part in found["loc"] if isinstance(part, int)), None)
        if found["loc"][0] == key and place is not None:
            return UsageError(
                f"expected {_ITEMS[key]}, got {show(found['input'])} - {at(key, where)}, item {place + 1}",
                hint=as_set_there(f"write for example `{key}: {_EXAMPLES[key]}`", key, where),
            )
    got = errors[0]["input"]
    return UsageError(
        f"expected {_expected(key, got)}, got {show_set(got, key, where)} - {at(key, where)}",
        hint=as_set_there(_next_step(key, got), key, where),
    )


_ITEMS = {
    "gpus": f"an ordinal from 0 to {MAX_GPUS - 1}",
    "weights": "a number of 0 or more",
    "chunks": "a whole number of 0 or more",
}
_TOP = (
    dict.fromkeys(("seed", "trace_sample"), INT64_MAX)
    | {"output_device": MAX_GPUS - 1, "gpus": MAX_GPUS, "processes": MAX_GPUS, "nodes": MAX_NODES}
    | dict.fromkeys(("input_size", "output_size", "batch_size", "data_size"), INT64_MAX)
)
_EXPECTED = {
    "gpus": "a list of ordinals such as [0, 1, 2], a count such as 3, or `all`",
    "model": f"one of {', '.join(MODELS)}, or {FORMS}",
    "output_device": "the ordinal of a GPU, 0 or more",
    "dim": "a dimension from 0 to 63",
    "shuffle": "true or false",
    "drop_last": "true or false",
    "seed": "a whole number of 0 or more",
    "trace_sample": "the number of a sample, 0 or more",
    "dtype": f"one of {', '.join(get_args(DType))}",
    "strategy": "dp or ddp",
    "batch_size_is": "per-rank or global",
    "sampler_drop_last": "true or false",
    "weights": "a number for each GPU such as [1, 2, 2]",
    "chunks": "the rows of each GPU such as [4, 13, 13]",
}
_EXAMPLES = {
    "gpus": "[0, 1, 2]", "output_device": "0", "shuffle": "true", "drop_last": "true", "strategy": "ddp",
    "nodes": "4", "processes": "3", "batch_size_is": "global", "sampler_drop_last": "true",
    "trace_sample": "17", "weights": "[1, 2, 2]", "chunks": "[4, 13, 13]",
}  # fmt: skip


OTHER_DTYPES = {
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}
"""Other names of types."""


def _expected(key: str, got: object) -> str:
    if type(got) is int and key in _TOP and got > _TOP[key]:
        most = f"a whole number of at most {_TOP[key]}"
        return f"{most}, since PyTorch can number {MAX_GPUS} GPUs" if _TOP[key] <= MAX_GPUS else most
    return _EXPECTED.get(key, "a whole number of 1 or more")


def _next_step(key: str, got: object) -> str:
    default = Config.model_fields[key].default
    example = _EXAMPLES.get(key, default)
    if got is None:
        return f"leave `{key}` out to get the default{'' if default is None else f', {example}'}"
    if key in _TOP or key == "dim":
        number = _as_number(got)
        if number is not None:
            slip = "the quotes" if isinstance(got, str) else "the point or exponent"
            return f"write it without {slip}: `{key}: {number}`"
    if key == "gpus":
        return _next_step_gpus(got)
    if key == "dtype" and isinstance(got, str):
        other = OTHER_DTYPES.get(got.lower())
        near = [other] if other else difflib.get_close_matches(got, get_args(DType), n=1)
        return f"did you mean `{near[0]}`?" if near else f"leave `{key}` out to get the default, {default}"
    return f"write for example `{key}: {example}`"


def _as_number(got: object) -> int | None:
    """Read what was meant as a whole number: text such as '30', or 1000.0 from 1e3."""
    if isinstance(got, str) and got.strip().isdecimal() and len(got) < 20:
        return int(got)
    if isinstance(got, float) and got.is_integer() and 0 < got < INT64_MAX:
        return int(got)
    return None


def _next_step_gpus(got: object) -> str:
    if type(got) is int and got == 0:
        return "for GPU 0 write `gpus: [0]`; for the CPU leave `gpus` out"
    if isinstance(got, str) and re.fullmatch(r"[0-9]{1,9}( *, *[0-9]{1,9}){1,15}", got):
        return f"write it as a list: `gpus: [{', '.join(re.findall('[0-9]+', got))}]`"
    return "write for example `gpus: [0, 1, 2]`"
