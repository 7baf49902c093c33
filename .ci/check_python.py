"""Stop with one sentence when this Python cannot run xladoctor; runs before anything is made."""

import sys

if not (3, 10) <= sys.version_info[:2] <= (3, 13):
    found = f"{sys.version_info[0]}.{sys.version_info[1]}"
    sys.exit(
        f"xladoctor needs Python 3.10 to 3.13 and this is {found}: "
        "name another one, as in 'make PYTHON=python3.11 demo'"
    )
