"""Approval: the input of a policy, how its decision is read, and how it is merged with the checks."""
