"""Run ``pip install`` with the arguments given, and say in few lines how far it is.

pip by itself is either talkative or silent: with torch it downloads and unpacks gigabytes, and a
person who sees nothing for a minute stops it. Everything pip says is kept in a file, and shown
when it fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

#: Seconds without a new line after which a sign of life is printed.
QUIET = 10.0
_SIZED = re.compile(r"(?:Downloading|Using cached) (?:\S*/)?(?P<file>\S+) \((?P<size>[^)]+)\)")
_NAME = re.compile(r"(?P<name>.+?)-\d.*")
_BIG = re.compile(r"GB|\d{2,}(?:\.\d+)? MB")


class Progress:
    """Prints stages as pip's lines reveal them, and a sign of life when there are none."""

    def __init__(self) -> None:
        """Start the clock."""
        self.start = self.said = time.monotonic()
        self.used = shutil.disk_usage(sys.prefix).used
        self.stage = "asking the package index what is needed"
        self.done = threading.Event()

    def say(self, text: str) -> None:
        """One line, with the seconds since the start."""
        self.said = time.monotonic()
        print(f"  {self.said - self.start:4.0f} s  {text}", flush=True)

    def read(self, line: str) -> None:
        """Take in one line of pip's output."""
        if sized := _SIZED.search(line):
            named = _NAME.fullmatch(sized["file"])
            self.stage = f"fetching {named['name'] if named else sized['file']} ({sized['size']})"
            if _BIG.search(sized["size"]):
                self.say(self.stage)
        elif line.startswith("Installing collected packages:"):
            count = line.count(",") + 1
            self.stage = f"unpacking {count} packages"
            self.used = shutil.disk_usage(sys.prefix).used
            self.say(self.stage)

    def watch(self) -> None:
        """Print a sign of life whenever nothing else was said for a while."""
        while not self.done.wait(1.0):
            if time.monotonic() - self.said >= QUIET:
                self.say(f"still {self.stage}{self.unpacked()}")

    def unpacked(self) -> str:
        """How much of a long unpacking is done."""
        if not self.stage.startswith("unpacking"):
            return ""
        written = shutil.disk_usage(sys.prefix).used - self.used
        return f", about {max(written, 0) / 1e9:.1f} GB so far"


def main(arguments: list[str]) -> int:
    """Install; the exit code is pip's."""
    log = Path(sys.prefix) / "install.log"
    print(f"Installing {' '.join(a for a in arguments if a != '-e')} into {Path(sys.prefix).name}")
    print("  torch and torch_xla bring several GB the first time; all of pip's words: " + log.name)
    progress = Progress()
    progress.say(progress.stage)
    watcher = threading.Thread(target=progress.watch, daemon=True)
    watcher.start()
    # Of 20,000 modules few are ever imported: Python compiles these then, pip would compile all.
    options = ["--progress-bar", "off", "--no-compile"]
    command = [sys.executable, "-m", "pip", "install", *options, *arguments]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        ) as pip,
    ):
        assert pip.stdout is not None
        for line in pip.stdout:
            kept.write(line)
            progress.read(line)
    progress.done.set()
    watcher.join()
    if pip.returncode:
        print(log.read_text(encoding="utf-8")[-4000:], file=sys.stderr)
        print(f"pip failed with exit code {pip.returncode}; its words are above", file=sys.stderr)
    else:
        progress.say("installed")
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
