"""What will be split how, by arithmetic alone."""
