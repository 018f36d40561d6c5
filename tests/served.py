"""Pages in a browser without a screen, from a server of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["dom_of"]


def dom_of(folder: Path, page: str, milliseconds: int = 20_000) -> str:
    """The document of a page after this time of the browser's clock. Skips the test without Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("Chromium is not installed")
    server = subprocess.Popen(
        [sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1"], cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        port = server.stdout.readline().split("port ")[1].split()[0]
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--virtual-time-budget={milliseconds}", "--dump-dom"]
        address = f"http://127.0.0.1:{port}/{page}"
        command = [browser, *options, address]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    finally:
        server.kill()
        server.communicate()
