"""Looking at a queue in somebody's name."""
