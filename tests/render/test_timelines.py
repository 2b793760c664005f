"""Timelines as SVG, HTML and Chrome traces."""

import json
from dataclasses import replace
from pathlib import PurePath
from xml.etree import ElementTree as ET

import pytest

from dpdemo.render.chrometrace import is_trace, trace_json
from dpdemo.render.timelines import timelines_html, timelines_svg
from dpdemo.reports.timeline import Arrow, Block, Timeline

STEP = Timeline(
    title="a <step> & more",
    axis="milliseconds",
    is_time=True,
    lanes=("GPU 0", "GPU 1"),
    blocks=(
        Block(lane="GPU 0", name="forward", start=0, length=2, work="compute"),
        Block(lane="GPU 1", name="waits for GPU 0", start=0, length=2, work="wait"),
        Block(lane="GPU 0", name="replicate", start=2, length=1, work="copy"),
        Block(lane="GPU 1", name="replicate", start=2, length=1, work="copy", detail="4 of 8 rows"),
    ),
    arrows=(Arrow(source="GPU 0", target="GPU 1", name="replicate", start=2, length=1, num_bytes=2048),),
)
ORDER = replace(STEP, is_time=False, axis="not time: an order")
SVG = "{http://www.w3.org/2000/svg}"


def parsed(timelines):
    return ET.fromstring(timelines_svg(timelines))  # noqa: S314 - our own


def texts(timelines):
    return [element.text for element in parsed(timelines).iter(f"{SVG}text")]


def test_an_svg_has_a_lane_for_each_gpu_and_a_block_and_an_arrow_for_each():
    root = parsed([STEP])
    assert len(list(root.iter(f"{SVG}rect"))) == 1 + len(STEP.blocks)
    assert len([line for line in root.iter(f"{SVG}line") if line.get("class") == "arrow"]) == 1
    assert {"a <step> & more", "GPU 0", "GPU 1", "forward", "milliseconds", "3 ms"} <= set(texts([STEP]))
    told = [element.text for element in root.iter(f"{SVG}title")]
    assert "replicate: 2 KiB from GPU 0 to GPU 1" in told
    assert "replicate: 4 of 8 rows" in told


def test_an_axis_that_is_no_time_has_no_milliseconds():
    assert not any(text.endswith(" ms") for text in texts([ORDER]))


def test_several_timelines_stand_below_each_other():
    one, three = (parsed(many).get("viewBox").split()[3] for many in ([STEP], [STEP] * 3))
    assert int(three) == 3 * int(one)


def test_a_page_needs_nothing_from_a_network_and_escapes_what_it_shows():
    page = timelines_html([STEP], "a <title>", "cells < and >")
    assert page.count("http") == 1  # the name of SVG
    assert "<title>a &lt;title&gt;</title>" in page
    assert "<pre>cells &lt; and &gt;</pre>" in page


def test_a_timeline_without_anything_is_drawn():
    empty = replace(STEP, blocks=(), arrows=())
    assert "GPU 1" in timelines_svg([empty])


def test_a_trace_has_a_process_a_timeline_a_thread_a_lane_and_flows_for_copies():
    trace = json.loads(trace_json([STEP, ORDER]))
    events = trace["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M"}
    assert names["process_name", 1, 0] == {"name": "a <step> & more"}
    assert names["process_name", 2, 0] == {"name": "a <step> & more (not time: an order)"}
    assert names["thread_name", 1, 1] == {"name": "GPU 1"}
    blocks = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert ("forward", 0, 0, 2000) in blocks
    assert ("replicate", 1, 2000, 1000) in blocks


def test_a_flow_begins_and_ends_inside_the_blocks_that_it_joins():
    events = json.loads(trace_json([STEP]))["traceEvents"]
    begin, end = (next(e for e in events if e["ph"] == phase) for phase in "sf")
    assert (begin["id"], begin["tid"], end["tid"], begin["args"]) == (end["id"], 0, 1, {"bytes": 2048})
    assert 2000 < begin["ts"] < end["ts"] < 3000


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("trace.json", True),
        ("a/step.trace.json", True),
        ("TRACE.JSON", True),
        ("report.json", False),
        ("trace.svg", False),
    ],
)
def test_a_file_is_a_trace_by_its_name(name, is_one):
    assert is_trace(PurePath(name)) == is_one
