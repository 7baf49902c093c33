"""N simulated XLA cores as threads of one process on the CPU; runs inside the user's process."""
