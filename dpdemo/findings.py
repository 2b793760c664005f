"""What a split leaves to be desired: idle devices, uneven chunks, lone samples; and the nearest remedy."""

from dataclasses import dataclass
from typing import Literal, get_args

from dpdemo.errors import UsageError
from dpdemo.report import BatchGroup, SplitReport
from dpdemo.split import even_batch_sizes_near

Kind = Literal["idle", "uneven", "lone-sample"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is true of one group of batches."""

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
                return f"{batches}: a chunk holds a lone sample; BatchNorm in training fails there"


def find(report: SplitReport) -> tuple[Finding, ...]:
    """List what holds of each group of batches, in the order of the epoch."""
    return tuple(Finding(kind, group) for group in report.batches for kind in KINDS if _holds(kind, group))


def _holds(kind: Kind, group: BatchGroup) -> bool:
    match kind:
        case "idle":
            return len(group.idle) > 0
        case "uneven":
            return group.smallest != group.largest
        case "lone-sample":
            # One sample on one device is the user's own batch size, not something that the split did.
            return group.smallest == 1 and group.batch_size > 1


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """Read the value of `--fail-on`: kinds of finding, separated by commas.

    Raises:
        UsageError: for a word that is no kind.

    """
    words = text.split(",")
    for word in words:
        if word not in KINDS:
            raise UsageError(f"expected some of {','.join(KINDS)}, got {word[:60]!r} - at option `--fail-on`")
    return tuple(kind for kind in KINDS if kind in words)


def advice(report: SplitReport) -> str:
    """Say in one line what would leave no device idle or short, or nothing when nothing would help."""
    found = find(report)
    if not found:
        return ""
    num_devices = len(report.devices)
    full = report.batches[0]
    if any(finding.group is full for finding in found):
        sizes = [
            size
            for size in even_batch_sizes_near(full.batch_size, num_devices)
            if size <= report.config.data_size
        ]
        if not sizes:
            return ""
        which = " or ".join(f"--batch-size {size}" for size in sizes)
        return f"{which} fills all {num_devices} devices equally"
    return f"--drop-last leaves out the short last batch of {report.batches[-1].batch_size}"
