"""What is known about a file: names, kinds of value, regions, reach."""
