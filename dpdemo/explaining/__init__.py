"""One batch through scatter, replicate, parallel_apply and gather, one step at a time."""
