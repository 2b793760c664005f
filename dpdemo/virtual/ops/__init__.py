"""What happens to an operator on virtual GPUs: the dispatch, and a rule for each that needs one."""
