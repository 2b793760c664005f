"""The config of a split: read from YAML, options or keyword arguments, and checked."""
