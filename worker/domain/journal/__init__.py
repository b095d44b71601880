"""What a request has done so far: its steps, who may continue, and how a successor resumes."""
