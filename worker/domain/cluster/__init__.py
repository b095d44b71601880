"""Objects of the cluster: names, kinds, what may be looked at, and how they are read and shown."""
