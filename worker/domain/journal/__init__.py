"""The steps of a request so far, the run that may continue, and how a successor resumes."""
