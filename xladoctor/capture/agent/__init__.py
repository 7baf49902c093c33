"""What runs inside the user's processes: standard library only, and it never breaks a program."""
