"""What a request has done so far: steps, who may go on, and how a successor does."""
