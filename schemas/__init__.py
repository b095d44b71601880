"""The contract: requests, results, failures, audit events, and every name on the wire.

It depends on pydantic and the standard library only.
"""
