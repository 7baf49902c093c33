"""9xx: Lightning, Accelerate, Trainer."""
