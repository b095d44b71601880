"""The checks of an answer."""
