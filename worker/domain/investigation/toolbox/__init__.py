"""The tools the model may call: what each reads, and how the model sees it."""
