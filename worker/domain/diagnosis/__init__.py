"""What the state of the cluster says about the cause of an incident, by rules over typed facts."""
