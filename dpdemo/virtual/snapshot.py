"""The blocks of the GPUs and their history, in the format of `torch.cuda.memory._dump_snapshot`.

PyTorch's own viewer opens it: https://pytorch.org/memory_viz, and `python -m torch.cuda._memory_viz`. Its
fields are those of torch/csrc/cuda/memory_snapshot.cpp (2.13). Sizes are those of blocks, multiples of 512
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from dpdemo.virtual.caching import Block, Segment
    from dpdemo.virtual.recorder import Event, Frames, Recorder

_NOTE = "virtual GPUs of dpdemo: addresses are synthetic, times are the events' numbers"
_SETTINGS = {"expandable_segments": False, "max_split_size": -1, "garbage_collection_threshold": 0.0}
_ACTIONS = {"alloc": ("alloc",), "free": ("free_requested", "free_completed"), "oom": ("oom",)}

Fields = dict[str, object]
"""A segment, a block, an event or a frame: what it is called in the format, and what it is."""


class Snapshot(TypedDict):
    """All that a snapshot holds."""

    segments: list[Fields]
    device_traces: list[list[Fields]]
    external_annotations: list[Fields]
    allocator_settings: Fields
    note: str


def snapshot_of(recorder: Recorder) -> Snapshot:
    """Return a snapshot of all GPUs: their segments as they are now, and the events that were kept."""
    return {
        "segments": [
            _segment(index, segment)
            for index, allocator in enumerate(recorder.allocators)
            for segment in allocator.segments
        ],
        "device_traces": [
            [entry for event in events for entry in _entries(event)] for events in recorder.events
        ],
        "external_annotations": [],
        "allocator_settings": dict(_SETTINGS),
        "note": _NOTE,
    }


def _segment(index: int, segment: Segment) -> Fields:
    blocks = list(segment.blocks())
    used = sum(block.size for block in blocks if not block.is_free)
    return {
        "device": index, "address": segment.address, "total_size": segment.size, "stream": 0,
        "segment_type": "small" if segment.is_small else "large", "segment_pool_id": (0, 0),
        "allocated_size": used, "active_size": used, "is_expandable": False, "frames": [],
        "requested_size": sum(block.requested for block in blocks if not block.is_free),
        "blocks": list(map(_block, blocks)),
    }  # fmt: skip


def _block(block: Block) -> Fields:
    return {
        "address": block.address, "size": block.size, "frames": _frames(block.frames),
        "requested_size": 0 if block.is_free else block.requested,
        "state": "inactive" if block.is_free else "active_allocated",
    }  # fmt: skip


def _entries(event: Event) -> list[Fields]:
    return [
        {
            "action": action, "addr": event.address, "size": event.size, "stream": 0, "time_us": event.number,
            "frames": _frames(event.frames), "user_metadata": event.phase,
        }
        for action in _ACTIONS[event.action]
    ]  # fmt: skip


def _frames(frames: Frames) -> list[Fields]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in frames]
