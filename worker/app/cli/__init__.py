"""The `rca` command. Exit codes: 0 result, 1 error, 2 usage, 3 dead letter, 4 timeout, 5 rejected."""
