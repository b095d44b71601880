"""Decisions as functions from values to values. No I/O; the outside world comes in through `ports`."""
