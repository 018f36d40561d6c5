"""rlx cache: the files that rlx keeps in the user's folder, and no others."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rlx.backends.cpu.runtime.folder import File, Folder, UnsafeFolderError
from rlx.backends.cpu.runtime.store import user_folder
from rlx.cli.mistakes import FAILED, FINE, Mistake
from rlx.cli.output import as_json, short_path
from rlx.columns import aligned
from rlx.errors import bytes_text, did_you_mean
from rlx.placement.stored_rates import FILES as RATE_FILES
from rlx.profiling.peaks import FILES as PEAK_FILES

__all__ = ["Kept", "add_options", "cache", "kept_files"]

ACTIONS = {"ls": "name every file", "size": "how much they take", "clear": "remove them"}


class Kept(NamedTuple):
    """A file that rlx wrote, its folder, and its kind."""

    folder: Folder
    path: Path
    kind: str
    file: File


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rlx cache`."""
    parser.add_argument("action", metavar="ls|size|clear", help="; ".join(f"{k}: {v}" for k, v in ACTIONS.items()))
    parser.add_argument("--json", action="store_true", help="print JSON")


def cache(options: argparse.Namespace) -> int:
    """List, count or remove the files."""
    if options.action not in ACTIONS:
        near = did_you_mean(options.action, ACTIONS)
        raise Mistake(f"rlx cache has no action {options.action}.", near or f"Write one of {', '.join(ACTIONS)}.")
    home = user_folder()
    if home is None:
        raise Mistake("There is no cache: RLX_CACHE is 0, or this user has no home.", "Unset RLX_CACHE.")
    files = sorted(kept_files(), key=lambda kept: (kept.kind, -kept.file.used))
    total = sum(kept.file.size for kept in files)
    folder, said = home.parent, f"{_counted(len(files))}, {bytes_text(total)}, in {short_path(home.parent)}"
    if options.action == "clear":
        left = _remove(files)
        if left:
            what = f"{_counted(left)} could not be removed from {folder}."
            raise Mistake(what, "Look at its owner and mode.", FAILED)
        said = f"removed {said}"
    if options.json:
        rows = [{"path": k.path, "kind": k.kind, "bytes": k.file.size, "used": k.file.used} for k in files]
        told = {"folder": folder, "files": len(files), "bytes": total, "removed": options.action == "clear"}
        print(as_json(told | ({} if options.action == "size" else {"list": rows})))
        return FINE
    if options.action == "ls" and files:
        print("\n".join(aligned([("kind", "size", "last used", "name"), *map(_row, files)], (0, 2, 3))))
    print(said)
    return FINE


def kept_files() -> Iterator[Kept]:
    """The files that rlx wrote into this user's folder; none if there is no folder. Raises Mistake for a folder that
    other users can change."""
    native = user_folder()
    if native is None:
        return
    kinds = ((native, "code", ()), (native.parent, "peaks", PEAK_FILES), (native.parent, "rates", RATE_FILES))
    for path, kind, patterns in kinds:
        if not path.is_dir():
            continue
        try:
            folder = Folder(path)
            files = list(folder.files(*patterns))
        except UnsafeFolderError as error:
            instead = "Set RLX_CACHE_DIR to a folder of yours."
            raise Mistake(f"{path} is not used: it {error}.", instead, FAILED) from None
        except OSError as error:
            raise Mistake(f"{path} cannot be read: {error.strerror}.", code=FAILED) from None
        for file in files:
            yield Kept(folder, path / file.name, kind, file)


def _remove(files: list[Kept]) -> int:
    """Remove the files; -> how many are still there."""
    for kept in files:
        kept.folder.remove(kept.file.name)
    return sum(kept.folder.has(kept.file.name) for kept in files)


def _row(kept: Kept) -> tuple[str, ...]:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.file.used))
    return kept.kind, bytes_text(kept.file.size), when, kept.path.name


def _counted(number: int) -> str:
    return f"{number} file{'s' * (number != 1)}"
