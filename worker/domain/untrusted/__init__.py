"""Text that others wrote: secrets are removed from it, it is fenced and bounded, and planted instructions are detected."""
