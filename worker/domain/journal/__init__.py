"""The steps of a request: what they count to, which run may continue, and when a request runs in isolation.

How an investigation takes over the steps of an earlier run is in
worker/domain/investigation/journaled_steps.py.
"""
