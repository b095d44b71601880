"""Approval rules: what a policy is asked, how its answer is read, and how it is joined with the checks."""
