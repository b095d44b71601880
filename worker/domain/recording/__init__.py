"""Recorded analyses: what was asked and answered, kept so that the same analysis can be run again without a cluster."""
