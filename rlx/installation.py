"""The place that rlx was installed from, and the command that installs one of its extras from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["install_command", "repository"]

_CHECKOUT = Path(__file__).resolve().parent.parent


def install_command(extra: str, *, upgrade: bool = False) -> str:
    """The pip command that adds an extra to this installation: from its checkout, repository, file or index.

    upgrade: also replace the extra's packages by newer releases.

    >>> install_command("onnx").startswith("pip install ")
    True
    """
    return f"pip install {'--upgrade ' if upgrade else ''}{_requirement(extra)}"


def repository() -> str | None:
    """The address of the repository in the package's metadata; None if the metadata have none."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        rows = metadata("rlx").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    addresses = dict(row.split(", ", 1) for row in rows)
    return addresses.get("Repository")


def _requirement(extra: str) -> str:
    origin = _origin()
    if origin is None:
        return f"'rlx[{extra}]'"
    address: str = origin["url"]
    if "dir_info" in origin:
        from urllib.parse import urlparse
        from urllib.request import url2pathname  # imports much

        option = "-e " if origin["dir_info"].get("editable") else ""
        return f"{option}'{url2pathname(urlparse(address).path)}[{extra}]'"
    if "vcs_info" in origin:
        revision = origin["vcs_info"].get("requested_revision")
        address = f"{origin['vcs_info']['vcs']}+{address}{f'@{revision}' if revision else ''}"
    return f"'rlx[{extra}] @ {address}'"


def _origin() -> dict[str, Any] | None:
    """The installation's direct_url.json (PEP 610); a checkout that is not installed counts as a folder."""
    from importlib.metadata import distributions

    # the first may be the build's rlx.egg-info in the checkout's folder, which has no such file
    texts = [found.read_text("direct_url.json") for found in distributions(name="rlx")]
    text = next(filter(None, texts), None)
    if text is not None:
        return json.loads(text)
    return {"url": _CHECKOUT.as_uri(), "dir_info": {}} if (_CHECKOUT / "pyproject.toml").exists() else None
