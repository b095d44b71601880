"""Local stand-ins for the outside world that speak the real protocols: NATS, the Kubernetes API, chat
completions.
"""
