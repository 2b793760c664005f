"""DataParallel against DistributedDataParallel for one config, both really run."""
