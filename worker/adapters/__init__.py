"""One vendor per file or package, each behind a port of the domain.

Adapters take plain values, never settings.
"""
