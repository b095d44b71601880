"""Quantities as the Kubernetes API writes them."""

from __future__ import annotations

import re

SUFFIXES = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
QUANTITY = re.compile(r"\s*([+-]?[0-9.]{,64}(?:[eE][+-]?\d\d?)?)\s*([KMGTPE]i|[numkMGTPE]?)(?:B|bytes)?\s*$")

ROUNDING = 1e-6
"""How far a sum of quantities may be off: less than a thousandth of a core, or a byte."""


def quantity(text: object) -> float | None:
    """The value of `16Mi`, `500m`, `1412336Ki`, `2`; None if it is not a quantity.

    In bytes, cores or counts.
    """
    match = QUANTITY.match(str(text)) if text is not None else None
    if match is None:
        return None
    try:
        return float(match[1]) * SUFFIXES[match[2]]
    except ValueError:
        return None


def doubled(text: str) -> str:
    """Twice a quantity such as `4Gi`, in the same unit; empty if it is not a quantity."""
    match = QUANTITY.match(text)
    if match is None or quantity(text) is None or "e" in match[1].lower():
        return ""
    return f"{float(match[1]) * 2:g}{match[2]}"
