"""Turns alerts of Prometheus into requests, for platforms without a gateway of their own."""
