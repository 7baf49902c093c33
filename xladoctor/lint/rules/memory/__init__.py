"""7xx: precision, memory and environment."""
