"""Audit events of a request: how they are told, chained, and checked afterwards."""
