"""General rules of Kubernetes, one module for each family of causes."""
