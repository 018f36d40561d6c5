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
from rlx.advice.tracebacks import without_ours
from rlx.config import scoped
from rlx.explain import progress

OURS = str(Path(rlx.__file__).parent)


def test_completion_offers_the_public_names() -> None:
    assert dir(rlx) == sorted(rlx.__all__) and {"nn", "random", "optim", "lax", "inspect", "save"} <= set(dir(rlx))


def printed(tmp_path: Path, script: str, **environment: str) -> str:
    """What a program of the user's prints on standard error as it ends."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(script), encoding="utf-8")
    settings = {**os.environ, "PYTHONPATH": str(Path(OURS).parent), "RLX_TRACEBACK": "", **environment}
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
    assert said.count("x + jnp.ones(3)") == 2 and "  at " not in said  # in each frame once, and not in the message


def test_notebook_cells_have_their_names(tmp_path: Path) -> None:
    """In messages, and as the origins of equations."""
    script = """
        import sys
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance(colors="nocolor")
        sys.stdout = sys.stderr
        shell.run_cell("import rlx, rlx.numpy as jnp", store_history=True)
        shell.run_cell("def layer(x):\\n    return x + jnp.ones(3)", store_history=True)
        shell.run_cell("try: layer(jnp.ones(2))\\nexcept ValueError as error: print(error)", store_history=True)
        shell.run_cell("program = rlx.make_program(layer)(jnp.ones(3)); program", store_history=True)
        shell.run_cell("print(program.equations[0].origin)", store_history=True)
    """
    said = printed(tmp_path, script, IPYTHONDIR=str(tmp_path))
    assert "  at Cell In[2]:2, in layer" in said
    assert "# float32[3]  Cell In[2]:2" in said
    assert "Cell In[2]:2 (layer)" in said


LOGGED = """
    import logging, traceback
    import rlx, rlx.numpy as jnp

    def layer(x):
        return x + jnp.ones(3)

    try:
        rlx.jit(rlx.grad(lambda x: layer(x).sum()))(jnp.ones(2))
    except rlx.errors.ShapeError:
        traceback.print_exc()
        logging.exception("lost")
"""


def test_logged_exceptions_show_the_users_frames(tmp_path: Path) -> None:
    said = printed(tmp_path, LOGGED)
    functions = re.findall(r'program.py", line \d+, in (.+)', said)
    assert functions == ["<module>", "<lambda>", "layer"] * 2 and OURS not in said
    assert printed(tmp_path, LOGGED, RLX_TRACEBACK="full").count(OURS) > 10


@pytest.mark.thorough
def test_pytest_shows_the_users_frames(tmp_path: Path) -> None:
    test = tmp_path / "test_layers.py"
    test.write_text(
        "import rlx, rlx.numpy as jnp\n\ndef layer(x):\n    return x + jnp.ones(3)\n\n"
        "def test_layer():\n    rlx.jit(layer)(jnp.ones(2))\n",
        encoding="utf-8",
    )
    said = {}
    for shown in ("", "full"):
        environment = {**os.environ, "PYTHONPATH": str(Path(OURS).parent), "RLX_TRACEBACK": shown}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(test)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path)
        said[shown] = re.findall(r"^(\S+\.py):\d+: ", done.stdout, re.M)
    assert [Path(file).name for file in said[""]] == ["test_layers.py"] * 2
    assert len(said["full"]) > 4


# --------------------------------------------------------------------- progress
def test_a_long_compilation_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    with scoped(progress=True), progress.announced("loss", 7):
        _wait_for(said, "compiling")
    _wait_for(said, "compiled")
    text = r"rlx: compiling loss \(7 equations\) \.\.\.\nrlx: compiled loss in \d+\.\d s\n"
    assert re.fullmatch(text, said.getvalue())


def test_a_short_one_and_a_silenced_one_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(progress, "PATIENCE", 600.0)
    with scoped(progress=True), progress.announced("loss", 7):
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
    with scoped(progress=True), progress.announced("loss", 7):
        _wait_for(said, "\r", times=2)
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

    with scoped(progress=True):
        rlx.jit(some_layer)(np.ones(7, np.float32))
    _wait_for(said, "compiled some_layer")
    assert said.getvalue().count("compiling some_layer") == 1


def _wait_for(said: io.StringIO, word: str, times: int = 1) -> None:
    deadline = time.monotonic() + 100
    while said.getvalue().count(word) < times and time.monotonic() < deadline:
        time.sleep(0.01)
    assert said.getvalue().count(word) >= times
