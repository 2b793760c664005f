"""DataParallel's calls as they happen.

seam.py   the one seam on DataParallel's steps; arguments.py: what these get, read as PyTorch reads it
trace.py  the trace of one call: shapes and devices in and out of each replica and of the wrapper
epoch.py  the batches of an epoch; calls.py: all calls of a program, kept in records.py
tree.py   nested values as scatter and gather open them
"""
