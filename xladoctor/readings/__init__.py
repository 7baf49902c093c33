"""Text and run directories to tidy tables."""
