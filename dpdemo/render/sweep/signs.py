"""What stands for a block: a sign that can be read without colour, and a colour that all eyes can tell.

The scale is cividis, made for readers with and without colour vision alike: dark blue to light yellow
(Nuñez, Anderton and Renslow 2018). The two marks have hues that it lacks (Okabe and Ito 2008).
"""

from typing import NamedTuple

from dpdemo.render.sweep.blocks import Block
from dpdemo.reports.sweep import ANSWERS, IDEAL, Measure

_CIVIDIS = (
    *((0, 32, 77), (0, 51, 111), (57, 72, 107), (87, 92, 109), (112, 113, 115)),
    *((138, 135, 121), (166, 157, 117), (196, 181, 108), (228, 207, 91), (255, 234, 70)),
)
_IDLE = (213, 94, 0)
_LONE = (230, 159, 200)
_LUMINANCE = (0.299, 0.587, 0.114)

_IN_COLOUR = "yellow is best, dark blue worst; orange a GPU idle; pink a sample alone"
_PREDICTED_IN_COLOUR = "yellow is best, dark blue worst; orange the model cannot run it"
LEGENDS: dict[Measure, str] = {
    "balance": "# all equal, 9 at least 0.9 ... 0 under 0.1; x a GPU idle; o a sample alone",
    "weight": "# all equal, 1 under 2 times ... 9 nine times or more; x a GPU idle; o a sample alone",
    "idle": "# none, 1-9 that many, + ten or more",
    "memory": "0 the least ... 9 the most; ! the model cannot run it",
    "fits": "# fits, ~ tight, . does not fit; ! the model cannot run it",
    "speedup": "1 under 2 times as fast ... 9 nine or more; ? cannot tell; - does not pay; ! fails",
    "break-even": "0 the shortest ... 9 the longest; - never pays; ! the model cannot run it",
}
_ANSWERS = {
    "fits": "#",
    "tight": "~",
    "does not fit": ".",
    "fails": "!",
    "cannot tell": "?",
    "does not pay": "-",
    "never pays": "-",
}


def in_colour(measure: Measure) -> str:
    """Say what the colours mean where they stand without signs."""
    return _PREDICTED_IN_COLOUR if measure in ANSWERS else _IN_COLOUR


class Colour(NamedTuple):
    """Red, green and blue, 0 to 255."""

    red: int
    green: int
    blue: int

    @property
    def css(self) -> str:
        """Write it as Rich and CSS read it."""
        return f"#{self.red:02x}{self.green:02x}{self.blue:02x}"

    def dimmed(self, goodness: float) -> "Colour":
        """Darken it the more, the worse a block is."""
        return Colour(*(int(part * (0.4 + 0.6 * goodness)) for part in self))

    @property
    def ink(self) -> str:
        """Choose black or white, whichever can be read on it."""
        is_light = sum(part * share for part, share in zip(self, _LUMINANCE, strict=True)) > 120
        return "#000000" if is_light else "#ffffff"


def sign(block: Block, measure: Measure) -> str:
    """Give the sign of a block."""
    if block.answer in _ANSWERS:
        return _ANSWERS[block.answer]
    if measure in _MARKED and (block.is_idle or block.is_lone):
        return "x" if block.is_idle else "o"
    if block.mean == IDEAL.get(measure):
        return "#"
    if measure == "idle":
        return "+" if block.mean >= 10 else str(max(1, round(block.mean)))
    scaled = {"balance": 10 * block.mean, "weight": block.mean, "speedup": block.mean}
    return str(min(int(scaled.get(measure, 10 * block.share)), 9))


_MARKED = {"balance", "weight"}


def colour(block: Block, measure: Measure) -> Colour:
    """Give the colour of a block: yellow is good, dark blue is not."""
    if block.answer == "fails":
        return Colour(*_IDLE)
    if measure in _MARKED and (block.is_idle or block.is_lone):
        return Colour(*(_IDLE if block.is_idle else _LONE)).dimmed(_goodness(block, measure))
    return Colour(*_CIVIDIS[min(int(_goodness(block, measure) * len(_CIVIDIS)), len(_CIVIDIS) - 1)])


def _goodness(block: Block, measure: Measure) -> float:
    """Give the place on the scale; balance is squared, since most of it is over one half."""
    match measure:
        case "balance":
            return block.mean**2
        case "weight":
            return 1 / block.mean
        case "idle":
            return 1 - block.mean / block.gpus
        case "fits":
            return {"fits": 1.0, "tight": 0.6}.get(block.answer, 0.0)
        case "speedup":
            return block.share
        case _:
            return 0.0 if block.answer == "never pays" else 1 - block.share
