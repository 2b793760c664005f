"""Questions that several rules ask of the evidence."""
