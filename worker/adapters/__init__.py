"""One vendor a file, each behind a port of the domain. Adapters take plain values, never settings."""
