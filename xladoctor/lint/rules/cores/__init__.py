"""4xx: several cores and their collectives."""
