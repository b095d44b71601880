"""Kubernetes objects: names, kinds, owners, events, history, and what may be looked at."""
