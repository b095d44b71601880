"""Asking models: fallbacks, breakers, limits of calls at once, tries, and conversations that are too long."""
