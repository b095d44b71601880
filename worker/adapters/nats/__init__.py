"""NATS JetStream: the queue, the streams, the journal, and what is kept in key-value buckets."""
