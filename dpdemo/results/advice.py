"""Problems of a split (idle devices, uneven chunks, lone samples), and the nearest remedy."""

import difflib
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from dpdemo.arithmetic.chunk import even_batch_sizes_near
from dpdemo.errors import UsageError
from dpdemo.results.batches import BatchGroup
from dpdemo.results.splitdata import SplitData
from dpdemo.wording import counted, show

Kind = Literal["idle", "uneven", "lone-sample"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Problem(NamedTuple):
    """One problem of one group of batches."""

    kind: Kind
    group: BatchGroup

    def __str__(self) -> str:
        group = self.group
        batches = f"batch {group.first}" if group.count == 1 else f"batches {group.first}–{group.last()}"
        match self.kind:
            case "idle":
                return f"{batches}: {len(group.idle)} of {group.num_devices} devices idle ({group.idle})"
            case "uneven":
                return f"{batches}: chunks of {group.largest} and {group.smallest} rows"
            case "lone-sample":
                return f"{batches}: a chunk holds a lone sample; BatchNorm in training can fail there"


def find(report: SplitData) -> tuple[Problem, ...]:
    """List the problems of each group of batches, in the order of the epoch."""
    return tuple(Problem(kind, group) for group in report.batches for kind in _problems(group))


def _problems(group: BatchGroup) -> Iterator[Kind]:
    if group.idle:
        yield "idle"
    if group.smallest != group.largest:
        yield "uneven"
    if group.smallest == 1:
        yield "lone-sample"


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """Read the value of `--fail-on`: kinds of finding, separated by commas.

    Raises:
        UsageError: for a word that is not a kind.

    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in KINDS:
            near = difflib.get_close_matches(word, KINDS, n=1)
            raise UsageError(
                f"expected some of {','.join(KINDS)}, got {show(word)}",
                key="fail_on",
                hint=f"did you mean `{near[0]}`?"
                if near
                else "separate kinds by commas: --fail-on idle,uneven",
            )
    return tuple(kind for kind in KINDS if kind in words)


def advice(report: SplitData) -> str:
    """Suggest in one line a split with no idle or short device; "" if none exists."""
    found = find(report)
    if not found:
        return ""
    if not any(finding.group is report.batches[0] for finding in found):
        return f"--drop-last leaves out the short last batch of {report.batches[-1].batch_size}"
    num_devices, data_size = len(report.devices), report.config.data_size
    near = even_batch_sizes_near(report.batches[0].batch_size, num_devices)
    sizes = [size for size in near if size <= data_size]
    if not sizes:
        few = f"{data_size} samples give {num_devices} devices less than two rows each"
        return f"{few}: {data_size // 2} would do" if data_size > 1 else ""
    even = [size for size in sizes if report.config.drop_last or _is_even(data_size % size, num_devices)]
    what = f"all {num_devices} devices equally" if num_devices > 1 else "the device with two rows"
    filled = f"fills {what}"
    if even:
        return f"{' or '.join(f'--batch-size {size}' for size in even)} {filled}"
    best = min(sizes, key=lambda size: data_size % size)
    left = counted(data_size % best, "sample")
    return f"--batch-size {best} --drop-last {filled}, and leaves out {left} at the end"


def rule(report: SplitData) -> str:
    """Derive the chunks of the first uneven batch from torch.chunk's rule; "" if all are even."""
    devices = len(report.devices)
    group = next((each for each in report.batches if each.smallest != each.largest or each.idle), None)
    if group is None or (group.in_model and group.largest != -(-group.batch_size // devices)):
        return ""
    each = f"ceil({group.batch_size} / {devices}) = {counted(group.largest, 'row')} each"
    rest = "" if group.smallest == group.largest else f"; the last chunk has the {group.smallest} left over"
    idle = f"; none is left for {group.idle}" if group.idle else ""
    return f"torch.chunk gives {each}{rest}{idle}"


def _is_even(rest: int, num_devices: int) -> bool:
    """Return whether the short last batch, if there is any, has no idle, short or lone chunk."""
    return not rest or even_batch_sizes_near(rest, num_devices) == (rest,)
