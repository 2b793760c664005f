"""A folder for PYTHONPATH: what each Python that a program starts imports first."""
