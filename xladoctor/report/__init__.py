"""One module a format; each is a function of a Report."""
