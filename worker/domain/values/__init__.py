"""Values that every room of the domain shares: ports, errors, limits, references to objects, workflows, conversations."""
