"""Local stand-ins for the outside world that speak the real protocols.

There are stand-ins for NATS, the Kubernetes API and chat completions.
"""
