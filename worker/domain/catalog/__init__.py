"""Workflows: what they are, which fit, in which order, how they are searched."""
