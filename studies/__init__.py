"""Studies that put softbench, and the claims made for soft prompts, to the test."""
