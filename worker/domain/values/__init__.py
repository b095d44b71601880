"""Values that all packages of the domain share: ports, errors, limits, references to objects, workflows,
conversations.
"""
