"""`exec --ranks N --check`: compare the gradients of N ranks with those of one process with all their rows.

The unmodified program runs twice. On N ranks observers (`taps.py`) note the samples, the numbers drawn, the
parameters and the gradients of a few steps. On one rank the k-th batch is the union of the ranks' batches,
and the parameters are set before each noted step. `check.py` runs both, `compare.py` compares the gradients,
and `judge.py` asks each signature (`unsynced.py`, `factors.py`, `weights.py`, `mixing.py`) for the cause of a
difference. A comparison that is not sure is "not checked", with the reason.
"""
