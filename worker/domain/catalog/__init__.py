"""Workflows: how they are read, which fit a context, in which order, and how they are searched."""
