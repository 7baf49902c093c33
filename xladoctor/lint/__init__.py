"""The static linter: source text in, findings out. Needs neither torch nor pandas."""
