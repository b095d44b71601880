"""Root cause analysis worker for Kubernetes incidents on NATS JetStream."""
