"""Results: one file for each, with its data, its words and its table."""
