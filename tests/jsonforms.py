"""Whether a JSON text is what `dpdemo schema` publishes: no key less, none more, and no other type."""

import json

import pytest

from dpdemo.render.schemas import schema_of

KINDS = {
    "string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict,
    "null": type(None),
}  # fmt: skip


def keeps_to(form, text):
    """Hold a text against the published schema, and give it as plain data."""
    schema = schema_of(form)
    written = json.loads(text, parse_constant=pytest.fail)  # NaN is not JSON
    hold(written, schema, schema.get("$defs", {}), form)
    return written


def hold(value, schema, shared, where):
    """Hold a value against a schema, as JSON Schema has it, but let no object have keys of its own."""
    if "$ref" in schema:
        schema = shared[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        assert any(keeps(value, arm, shared) for arm in schema["anyOf"]), f"{where}: {value!r}"
        return
    if "const" in schema or "enum" in schema:
        assert value in schema.get("enum", [schema.get("const")]), f"{where}: {value!r}"
        return
    if "type" in schema:
        assert isinstance(value, KINDS[schema["type"]]), f"{where}: {value!r} is no {schema['type']}"
        assert isinstance(value, bool) == (schema["type"] == "boolean"), f"{where}: {value!r}"
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", False)
        assert set(schema.get("required", [])) <= set(value), f"{where}: lacks keys"
        for key, item in value.items():
            assert key in known or others, f"{where}.{key} is in no schema"
            if key in known or isinstance(others, dict):
                hold(item, known.get(key, others), shared, f"{where}.{key}")
    if isinstance(value, list):
        parts = schema.get("prefixItems", [schema.get("items", {})] * len(value))
        for index, (item, part) in enumerate(zip(value, parts, strict=True)):
            hold(item, part, shared, f"{where}[{index}]")


def keeps(value, schema, shared):
    """Return whether a value keeps to one arm of several."""
    try:
        hold(value, schema, shared, "")
    except AssertionError:
        return False
    return True
