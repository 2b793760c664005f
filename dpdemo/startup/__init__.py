"""Functions that run once a module is imported, where dpdemo itself cannot be imported yet."""
