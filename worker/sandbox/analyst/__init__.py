"""The offline analyst: rules of Kubernetes that speak the protocol of a language model.

It stands in for an LLM when none is configured. It knows only what a request carries (prompt and tool
results), keeps no state between requests, calls the same read-only tools, and says that a person must look
when its rules do not decide. `respond` is the whole of it; `server` puts it behind HTTP.
"""
