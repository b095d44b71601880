"""NATS JetStream: the queue, the streams, the journal, and the key-value buckets."""
