"""What is seen of DataParallel while it runs."""
