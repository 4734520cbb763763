"""Chromium for the browser tests: that of the system, or Debian's package.

Run as `python -m tests.browser.chromium` to install it ahead of the tests, where that is allowed.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-noto-cjk")
ADVICE = (
    "the browser tests need Chromium: `apt-get install chromium fonts-noto-cjk` as root, or set"
    " BOLIDE_CHROMIUM to the path of one"
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def find() -> str | None:
    """The path of a Chromium."""
    given = os.environ.get("BOLIDE_CHROMIUM")
    return given or next((path for name in NAMES if (path := shutil.which(name))), None)


def main() -> None:
    if find() is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"{ADVICE}; without it they are skipped")
        return
    quiet = ["apt-get", "--quiet", "--quiet", "--yes", "--no-install-recommends"]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", *PACKAGES]):
        done = subprocess.run(
            [*quiet, *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            print(f"{ADVICE}; apt-get failed: {done.stderr[-500:]}", file=sys.stderr)
            return


if __name__ == "__main__":
    main()
