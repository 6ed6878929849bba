"""Small, whole programs on the queue, to read and to start from."""
