"""Showing a report: on stdout in the form asked for, and in a file when one was named."""

from dpdemo.cli.options import Settings
from dpdemo.cli.streams import print_hint
from dpdemo.report import SplitReport


def show(report: SplitReport, settings: Settings) -> None:
    """Write the report to stdout, and to the file of `--save`."""
    from dpdemo import render

    render.write(report, settings.format, render.make_console(), verbose=settings.verbose)
    if settings.save is not None:
        render.save(report, settings.save, verbose=settings.verbose)
        if not settings.quiet:
            print_hint(f"saved to {settings.save}")
