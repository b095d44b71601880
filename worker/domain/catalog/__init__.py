"""The workflow catalog: documents of workflows, the selection of those that fit an incident, and their
search.
"""
