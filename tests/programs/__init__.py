"""Real programs, on plain CPU and on simulated cores: what must agree, what was judged."""
