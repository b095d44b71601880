"""Recorded analyses: questions and answers, so that the same analysis can be run again without a cluster."""
