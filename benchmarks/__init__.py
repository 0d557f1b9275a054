"""Side by side with the peers: `python -m benchmarks` makes their environments, runs all cases and prints the table."""
