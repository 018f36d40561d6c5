"""JSON files of model folders, with errors that name the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlx.errors import FileFormatError

__all__ = ["read_object"]

_LARGEST = 1 << 28  # bytes; the largest index of shards has a few million


def read_object(path: Path, missing: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The object in a JSON file; `missing` where there is no file. Raises FileFormatError for anything else."""
    if missing is not None and not path.is_file():
        return missing
    failed = f"has more than {_LARGEST} bytes"
    if path.stat().st_size <= _LARGEST:
        try:
            found = json.loads(path.read_bytes())
            failed = "" if isinstance(found, dict) else "is not an object"
        except (ValueError, RecursionError) as error:
            found, failed = {}, f"is not JSON: {error}"
        if not failed:
            return found
    raise FileFormatError(f"{path} {failed}.", "Take the file from the model's own folder.")
