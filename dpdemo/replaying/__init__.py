"""What DataParallel did, recorded as checksums, repeated elsewhere and compared."""
