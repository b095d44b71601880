"""The first look: facts about the signal's resource, gathered before the model is asked."""
