"""Drills: what a worker promises, tried out with real processes, a real nats-server and real signals.

`python -m tests.drills` prints the table; `make drills` and `make soak` call it. The short ones run with the tests.
"""
