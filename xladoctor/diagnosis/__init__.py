"""Tables in, findings and a verdict out."""
