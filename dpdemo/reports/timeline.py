"""One step as a picture shows it: a lane for each GPU, blocks of work, and copies as arrows between lanes.

Frozen and torch-free. Places on the axis are milliseconds, or without a measured step nothing but an order.
"""

from dataclasses import dataclass
from typing import Literal

Work = Literal["compute", "copy", "wait", "launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What one lane does for a while."""

    lane: str
    name: str
    start: float
    length: float
    work: Work
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """Bytes on their way from one lane to another."""

    source: str
    target: str
    name: str
    start: float
    length: float
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step, or all calls of a program: `axis` says what the places mean."""

    title: str
    axis: str
    is_time: bool
    lanes: tuple[str, ...]
    blocks: tuple[Block, ...]
    arrows: tuple[Arrow, ...]

    @property
    def length(self) -> float:
        """Where the last block or arrow ends."""
        ends = [block.start + block.length for block in self.blocks]
        return max([0.0, *ends, *(arrow.start + arrow.length for arrow in self.arrows)])
