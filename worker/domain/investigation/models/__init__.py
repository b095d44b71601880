"""Asking models: fallbacks, circuit breakers, concurrency limits, retries, conversations that are too long."""
