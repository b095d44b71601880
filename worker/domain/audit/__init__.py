"""Audit events of a request: how they are recorded, chained, and verified afterwards."""
