"""Handles text that others wrote: removes secrets, fences and bounds it, and detects planted instructions."""
