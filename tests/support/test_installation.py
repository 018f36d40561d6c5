"""The commands in messages install extras from the place that rlx was installed from."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from rlx import installation

PLACES = {
    "a checkout": ({"url": "file:///home/me/rlx", "dir_info": {}}, "pip install '/home/me/rlx[cuda]'"),
    "an editable checkout": (
        {"url": "file:///home/me/my%20rlx", "dir_info": {"editable": True}},
        "pip install -e '/home/me/my rlx[cuda]'",
    ),
    "a repository": (
        {"url": "https://example.org/rlx.git", "vcs_info": {"vcs": "git", "requested_revision": "v1"}},
        "pip install 'rlx[cuda] @ git+https://example.org/rlx.git@v1'",
    ),
    "a wheel": (
        {"url": "file:///tmp/rlx-0.1.0-py3-none-any.whl", "archive_info": {}},
        "pip install 'rlx[cuda] @ file:///tmp/rlx-0.1.0-py3-none-any.whl'",
    ),
    "an index": (None, "pip install 'rlx[cuda]'"),
}


class Installed:
    """A distribution with the given direct_url.json."""

    def __init__(self, origin: dict[str, Any] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize("place", PLACES)
def test_extras_are_installed_from_the_same_place(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the folder of a build, which has no direct_url.json, is found first."""
    origin, command = PLACES[place]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [Installed(None), Installed(origin)])
    monkeypatch.setattr(installation, "_CHECKOUT", Path("/usr/lib/python3/dist-packages"))
    assert installation.install_command("cuda") == command


def test_a_checkout_on_the_path_is_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [])
    root = Path(__file__).resolve().parent.parent.parent
    assert installation.install_command("onnx") == f"pip install '{root}[onnx]'"


@pytest.mark.parametrize("addresses", [[], ["Documentation, https://d", "Repository, https://example.org/rlx"]])
def test_the_repository_is_in_the_metadata(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = Message()
    for address in addresses:
        found["Project-URL"] = address
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: found)
    assert installation.repository() == ("https://example.org/rlx" if addresses else None)


def test_messages_ask_for_the_command() -> None:
    """A command that is written by hand installs from an index, where rlx itself may come from somewhere else."""
    spelled = re.compile(r"pip install[^\n]*rlx\[")
    package = Path(installation.__file__).parent
    found, calls = [], 0
    for path in package.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "rlx[" not in source and "install_command" not in source:
            continue
        tree = ast.parse(source)
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = {id(n.body[0].value) for n in ast.walk(tree) if isinstance(n, documented) and ast.get_docstring(n)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if id(node) not in texts and spelled.search(text):
                found.append(f"{path.relative_to(package)}:{node.lineno}")
            calls += isinstance(node, ast.Call) and getattr(node.func, "id", "") == "install_command"
    assert not found, "use rlx.installation.install_command"
    assert calls > 15
