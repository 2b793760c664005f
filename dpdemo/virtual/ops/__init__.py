"""Operators on virtual GPUs: the dispatch, and a rule for each operator that needs one."""
