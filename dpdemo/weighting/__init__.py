"""How much each sample counts in the gradient under DataParallel."""
