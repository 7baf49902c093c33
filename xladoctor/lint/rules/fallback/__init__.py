"""5xx: operations that run on the CPU."""
