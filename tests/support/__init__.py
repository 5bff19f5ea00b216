"""What several test files use: a real server process, stock peers, a sample model, waiting with a deadline."""
