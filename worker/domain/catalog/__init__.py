"""The workflow catalog: the documents of workflows, which workflows fit an incident, and how they are searched."""
