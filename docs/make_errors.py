"""Write docs/errors: a page for each class of rlx.errors, as `rlx explain` prints it.

Run it after a change of rlx/errors.py or rlx/cli/lessons.py: python docs/make_errors.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
TARGET = ROOT / "docs" / "errors"


def pages() -> dict[str, str]:
    """The text of each file of the folder: the pages, and a list of them."""
    from rlx.cli.explain import meaning, page
    from rlx.cli.lessons import LESSONS

    rows = [f"| [{name}]({name}.md) | {meaning(name)} |" for name in sorted(LESSONS)]
    table = "\n".join(["| error | what happened |", "| --- | --- |", *rows])
    introduction = (
        "Each message says what happened, shows your line, and what to write instead. `rlx explain NAME` prints these"
        " pages in a terminal."
    )
    found = {f"{name}.md": page(name) for name in LESSONS}
    return {"index.md": f"# Errors, and what to do about them\n\n{introduction}\n\n{table}\n", **found}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for name, text in pages().items():
        (TARGET / name).write_text(text, encoding="utf-8")
    print(f"{len(pages())} pages in {TARGET.relative_to(ROOT)} written")
