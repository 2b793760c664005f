"""The formats that are exact plain text, made piece by piece."""

from collections.abc import Iterator

from dpdemo.report import BatchGroup, SplitReport


def pieces(report: SplitReport, format: str, *, verbose: bool) -> Iterator[str]:  # noqa: A002 - see `write`
    """Yield the text of a report in one of the plain formats, never holding the whole."""
    match format:
        case "transcript":
            from dpdemo.render import transcript

            return transcript.pieces(report)
        case "json":
            from dpdemo.render import jsonform

            return jsonform.pieces(report, verbose=verbose)
        case "csv":
            from dpdemo.render import csvform

            return csvform.pieces(report, verbose=verbose)
        case "markdown":
            from dpdemo.render import markdown

            return markdown.pieces(report, verbose=verbose)
    raise ValueError(f"expected transcript, json, csv or markdown, got {format!r}")


def listed(report: SplitReport, *, verbose: bool) -> Iterator[BatchGroup]:
    """Yield the groups of batches, or every batch."""
    return report.each_batch() if verbose else iter(report.batches)
