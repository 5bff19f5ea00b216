"""Where boards are kept: one contract, and the stores that keep it."""
