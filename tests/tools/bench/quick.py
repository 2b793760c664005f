"""`--quick`: run a benchmark once on small inputs, only to see that it still runs."""

import sys

QUICK = "--quick" in sys.argv


def rounds(many: int) -> int:
    """Return how often to measure: once with --quick."""
    return 1 if QUICK else many
