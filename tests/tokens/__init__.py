"""Access tokens: their form, who they stand for, and what becomes of their secret."""
