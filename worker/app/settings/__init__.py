"""Configuration by environment: prefix `RCA_`, groups nested by `__` (`RCA_NATS__SERVERS`).

The models are the documentation: `rca settings` prints the docstrings of their fields. Unknown `RCA_` names
are errors that name the nearest known one, except what Kubernetes injects for a Service called `rca-...`
(service links: `RCA_WORKER_PORT`, `RCA_NATS_SERVICE_HOST` and similar ones).
"""
