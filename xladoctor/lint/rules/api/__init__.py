"""8xx: old and removed API, ties to torch_xla."""
