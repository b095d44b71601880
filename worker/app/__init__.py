"""Composition: settings, wiring, intake, the command line. The only layer that knows every other."""
