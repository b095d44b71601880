"""The loop between the model and its tools."""
