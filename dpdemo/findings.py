"""What a split leaves to be desired: idle devices, uneven chunks, lone samples; and the nearest remedy."""

import difflib
from dataclasses import dataclass
from typing import Literal, get_args

from dpdemo.errors import UsageError
from dpdemo.report import BatchGroup, SplitReport
from dpdemo.split import even_batch_sizes_near, split_batch
from dpdemo.wording import show

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
                return f"{batches}: a chunk holds a lone sample; BatchNorm in training can fail there"


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
            return group.smallest == 1


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """Read the value of `--fail-on`: kinds of finding, separated by commas.

    Raises:
        UsageError: for a word that is no kind.

    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in KINDS:
            near = difflib.get_close_matches(word, KINDS, n=1)
            raise UsageError(
                f"expected some of {','.join(KINDS)}, got {show(word)} - at option `--fail-on`",
                hint=f"did you mean `{near[0]}`?"
                if near
                else "separate kinds by commas: --fail-on idle,uneven",
            )
    return tuple(kind for kind in KINDS if kind in words)


def advice(report: SplitReport) -> str:
    """Say in one line what would leave no device idle or short, or nothing when nothing would help."""
    found = find(report)
    if not found:
        return ""
    if not any(finding.group is report.batches[0] for finding in found):
        return f"--drop-last leaves out the short last batch of {report.batches[-1].batch_size}"
    num_devices, data_size = len(report.devices), report.config.data_size
    near = even_batch_sizes_near(report.batches[0].batch_size, num_devices)
    sizes = [size for size in near if size <= data_size]
    if not sizes:
        return _too_few(data_size, num_devices)
    # Where one of the two spares the last batch as well, the other is no advice
    lasting = [size for size in sizes if report.config.drop_last or _ends_evenly(size, report)]
    which = " or ".join(f"--batch-size {size}" for size in lasting or sizes)
    filled = f"all {num_devices} devices equally" if num_devices > 1 else "the device with two rows"
    rest = "" if lasting else "; --drop-last leaves out the short last batch"
    return f"{which} fills {filled}{rest}"


def _ends_evenly(batch_size: int, report: SplitReport) -> bool:
    """Whether the last batch, too, would leave no device idle or short, at this batch size."""
    split = split_batch(report.config.data_size % batch_size, len(report.devices))
    return split.num_idle == 0 and split.is_even and split.chunk != 1


def _too_few(data_size: int, num_devices: int) -> str:
    if data_size < 2:
        return ""
    return (
        f"{data_size} samples give {num_devices} devices less than two rows each: {data_size // 2} would do"
    )
