"""2xx: shapes and values that make XLA recompile."""
