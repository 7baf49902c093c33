"""3xx: the protocol of a step and its optimizer."""
