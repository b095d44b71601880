"""The contract: requests, results, failures, audit events, and every name on the wire. Pydantic and stdlib
only.
"""
