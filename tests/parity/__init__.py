"""One table of calls at every door: the same code, the same words, the same effect."""
