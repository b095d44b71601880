"""Rules over typed facts, which find the cause of an incident in the state of the cluster."""
