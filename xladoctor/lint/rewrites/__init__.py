"""What fixes write: text edits that rules attach to what they find."""
