"""Each error has a current page. Its example raises the error, and what to write runs: see test_documents.py."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import rlx
import rlx.numpy as jnp
from rlx import cli, errors
from rlx.cli.lessons import LESSONS

ROOT = Path(__file__).resolve().parent.parent
CLASSES = sorted(name for name in errors.__all__ if isinstance(getattr(errors, name), type))


def written_pages() -> dict[str, str]:
    """What docs/make_errors.py would write."""
    specification = importlib.util.spec_from_file_location("make_errors", ROOT / "docs" / "make_errors.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.pages()


def test_each_public_error_has_a_lesson() -> None:
    assert sorted(LESSONS) == CLASSES


def test_the_pages_are_current() -> None:
    """After a change: python docs/make_errors.py."""
    folder = ROOT / "docs" / "errors"
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")} == written_pages()


@pytest.mark.parametrize("name", CLASSES)
def test_a_page_shows_the_error_and_the_way_out(name: str) -> None:
    text = written_pages()[f"{name}.md"]
    _, mistake, instead = text.split("```pycon"), *text.split("```python")[-2:]
    assert ">>> " in text and len(instead.strip()) > 40 and mistake
    assert name in text.splitlines()[0]


def test_messages_lead_to_the_page() -> None:
    with pytest.raises(errors.ShapeError) as shape:
        jnp.ones(2) + jnp.ones(3)
    assert str(shape.value).endswith("\nMore: rlx explain ShapeError")
    with pytest.raises(errors.MissingNameError) as missing:
        jnp.tahn(1.0)
    assert str(missing.value).endswith("\nMore: rlx explain MissingNameError")
    moved = shape.value
    moved.relocate("  at elsewhere")
    assert str(moved).splitlines()[1] == "  at elsewhere" and str(moved).endswith("explain ShapeError")


def test_classes_that_are_not_public_lead_to_their_base() -> None:
    class Own(errors.DtypeError):
        pass

    assert str(Own("What.", "Instead.", line="")) == "What.\nInstead.\nMore: rlx explain DtypeError"
    assert str(rlx.errors.RlxError("What.", line="")) == "What."


def test_the_command_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "rlx.errors.ShapeError"]) == 0
    assert capsys.readouterr().out.startswith("# ShapeError\n")
    assert cli.main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CLASSES)
    assert cli.main(["explain", "ShapeErorr"]) == 2
    assert "Did you mean ShapeError?" in capsys.readouterr().err
    assert cli.main(["explain", "ShapeError", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == "ShapeError"
