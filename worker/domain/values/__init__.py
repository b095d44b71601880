"""Values that all packages of the domain share.

Among them are ports, errors, limits, references to objects, workflows and conversations.
"""
