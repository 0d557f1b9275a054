"""ppl: probabilistic programs on jax. Models are generator functions that yield random variables."""
