"""What to run, read from YAML, from options or from keyword arguments, and checked."""
