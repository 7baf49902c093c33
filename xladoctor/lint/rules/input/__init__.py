"""6xx: the input pipeline."""
