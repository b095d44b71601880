"""Alerts of Prometheus as requests: for platforms without a gateway of their own."""
