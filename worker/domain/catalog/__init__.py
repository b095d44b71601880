"""The workflow catalog: documents of workflows, the selection of those that fit, and their search."""
