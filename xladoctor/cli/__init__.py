"""The command line: flags in, a call, an exit code out. click is used only here."""
