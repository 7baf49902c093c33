"""``python -m xladoctor``."""

import sys

from xladoctor.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
