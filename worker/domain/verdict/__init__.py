"""From a model's answer to a result: parse, check, decide about review and approval, build."""
