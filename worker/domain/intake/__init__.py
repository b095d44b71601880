"""A message becomes a request, and the request is put into the terms of the checks."""
