"""The tools the model may call: what each reads, and what the model is shown of it."""
