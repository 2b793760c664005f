"""What two runs of a batch differ in, and why."""
