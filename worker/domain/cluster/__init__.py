"""Kubernetes objects: names, kinds, owners, events, history, and the scope that may be read."""
