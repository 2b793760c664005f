"""Fresh copies of a model, and running them: on one GPU, under DataParallel, chunk by chunk."""
