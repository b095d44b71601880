"""How objects, tables and logs of the cluster are shown to a model within a token budget."""
