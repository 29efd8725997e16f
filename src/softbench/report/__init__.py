"""What a person sees of a run: progress while it goes on, a table when it is done."""
