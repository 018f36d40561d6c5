"""Everyday manners: tracebacks of the user's frames, a word where a compilation takes long."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import rlx
import rlx.numpy as jnp
from rlx.call import progress
from rlx.config import scoped
from rlx.tracebacks import without_ours

OURS = str(Path(rlx.__file__).parent)


def printed(tmp_path: Path, script: str, **environment: str) -> str:
    """What a program of the user's prints on standard error as it ends."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(script), encoding="utf-8")
    settings = {**os.environ, "PYTHONPATH": str(Path(OURS).parent), **environment}
    return subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=settings).stderr


SCRIPT = """
    import rlx
    import rlx.numpy as jnp

    def layer(x):
        return x + jnp.ones(3)

    def loss(x):
        return layer(x).sum()

    rlx.jit(rlx.vmap(rlx.grad(loss)))(jnp.ones((4, 2)))
"""


def test_a_program_ends_with_the_users_frames(tmp_path: Path) -> None:
    said = printed(tmp_path, SCRIPT)
    frames = re.findall(r'File "([^"]+)", line \d+, in (.+)', said)
    assert [function for _, function in frames] == ["<module>", "loss", "layer"]
    assert all(file.endswith("program.py") for file, _ in frames)
    assert "rlx.errors.ShapeError: add got operands" in said and "During handling" not in said


def test_all_frames_are_shown_on_request(tmp_path: Path) -> None:
    said = printed(tmp_path, SCRIPT, RLX_TRACEBACK="full")
    assert said.count(OURS) > 5 and said.count("program.py") >= 3


def test_exceptions_of_the_users_are_shortened_with_their_causes(tmp_path: Path) -> None:
    script = """
        import rlx

        def inner(x):
            raise KeyError("lost")

        def outer(x):
            try:
                rlx.jit(inner)(x)
            except KeyError as error:
                raise ValueError("not found") from error

        rlx.jit(outer)(1.0)
    """
    said = printed(tmp_path, script)
    assert OURS not in said and "direct cause" in said
    assert re.findall(r"in (inner|outer|<module>)\n", said) == ["outer", "inner", "<module>", "outer"]


def test_threads_print_the_users_frames(tmp_path: Path) -> None:
    script = """
        import threading
        import rlx, rlx.numpy as jnp

        def work():
            rlx.jit(lambda x: x + jnp.ones(3))(jnp.ones(2))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """
    said = printed(tmp_path, script)
    assert OURS not in said and "in work" in said and "ShapeError" in said


def test_a_hook_of_the_users_is_called(tmp_path: Path) -> None:
    """One that was there before rlx prints; one that comes later is in charge."""
    script = """
        import sys
        def mine(kind, error, traceback):
            print("mine", kind.__name__, file=sys.stderr)
        {before}
        import rlx, rlx.numpy as jnp
        {after}
        jnp.ones(2) + jnp.ones(3)
    """
    for before, after in (("sys.excepthook = mine", ""), ("", "sys.excepthook = mine")):
        assert printed(tmp_path, script.format(before=before, after=after)) == "mine ShapeError\n"


def test_the_exception_itself_keeps_its_frames() -> None:
    with pytest.raises(rlx.errors.ShapeError) as caught:
        jnp.ones(2) + jnp.ones(3)
    whole = caught.value.__traceback__
    files = [entry.path for entry in caught.traceback]
    assert any(str(file).startswith(OURS) for file in files)
    shown = without_ours(whole)
    assert shown is not None and shown.tb_frame.f_code.co_filename == __file__ and shown.tb_next is None


def test_a_notebook_shows_the_users_frames(tmp_path: Path) -> None:
    """In IPython's shell, which has hooks of its own."""
    script = """
        import sys
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance(colors="nocolor")
        sys.stdout = sys.stderr
        shell.run_cell("import rlx, rlx.numpy as jnp")
        shell.run_cell("def layer(x):\\n    return x + jnp.ones(3)\\nrlx.jit(layer)(jnp.ones(2))")
        shell.run_cell("1/0")
    """
    said = printed(tmp_path, script, IPYTHONDIR=str(tmp_path))
    assert "ShapeError" in said and "ZeroDivisionError" in said and "layer" in said
    assert OURS not in said and "rlx/call" not in said


# --------------------------------------------------------------------- progress
def test_a_long_compilation_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    with progress.announced("loss", 7):
        time.sleep(0.2)
    _wait_for(said, "compiled")
    assert re.fullmatch(r"rlx: compiling loss \(7 equations\) \.\.\.\nrlx: compiled loss in 0\.\d s\n", said.getvalue())


def test_a_short_one_and_a_silenced_one_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with progress.announced("loss", 7):
        pass
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    with scoped(progress=False), progress.announced("loss", 7):
        time.sleep(0.1)
    time.sleep(0.05)
    assert said.getvalue() == ""


def test_a_terminal_counts_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(said, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress, "_STEP", 0.05)
    with progress.announced("loss", 7):
        time.sleep(0.3)
    _wait_for(said, "took")
    assert said.getvalue().count("\n") == 1 and said.getvalue().count("\r") >= 2


def test_jit_announces_what_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the program's own name, from the call itself."""
    said = io.StringIO()
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", said)

    def some_layer(x: np.ndarray) -> np.ndarray:
        for _ in range(60):
            x = jnp.sin(x) + jnp.sort(x)
        return x

    rlx.jit(some_layer)(np.ones(7, np.float32))
    _wait_for(said, "compiled some_layer")
    assert said.getvalue().count("compiling some_layer") == 1


def _wait_for(said: io.StringIO, word: str) -> None:
    deadline = time.monotonic() + 10
    while word not in said.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert word in said.getvalue()
