"""rlx launch without MPI: mistakes, one rank and its wrapper, what killed jobs leave, and a start that waits."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rlx.cli import leftovers, main, one_rank
from rlx.cli.launch import shares
from rlx.cli.mistakes import Mistake
from rlx.distributed import arrivals
from rlx.owners import own_mark

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")


def test_mistakes_of_launching(capsys: Any) -> None:
    for words in (["launch", "prog.py"], ["launch", "-n", "0", __file__], ["launch", "-n", "2", "no_such_file.py"]):
        assert main(words) == 2
        assert "rlx" in capsys.readouterr().err


def test_hosts_share_processes() -> None:
    assert shares("a", 3) == "a:3" and shares("a, b.c", 4) == "a:2,b.c:2" and shares("a,b,c", 5) == "a:2,b:2,c:1"
    assert shares("a:1,b:3", 4) == "a:1,b:3"
    for hosts, said in (("a,b,c", "with none"), ("a:1,b", "list of hosts"), ("a:2,b:1", "is for 3"), ("a,", "list of")):
        with pytest.raises(Mistake, match=said):
            shares(hosts, 2)


def test_ranks_of_a_machine_share_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_rank.os, "sched_getaffinity", lambda process: range(8), raising=False)
    for given, threads_of_each in (({}, "8"), ({"MPI_LOCALNRANKS": "3"}, "2"), ({"MPI_LOCALNRANKS": "16"}, "1")):
        found = one_rank.threads_each({**given, "OMP_NUM_THREADS": "5"})
        assert (found["RLX_NUM_THREADS"], found["OMP_NUM_THREADS"]) == (threads_of_each, "5")


def wrapped(rank: int, folder: Path, *command: str) -> tuple[int, str]:
    """The exit code of a rank's wrapper for a program, and what it printed."""
    words = [sys.executable, one_rank.__file__, "0.1", str(folder), sys.executable, "-c", *command]
    done = subprocess.run(words, env=os.environ | {"PMI_RANK": str(rank)}, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    code, text = wrapped(1, tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert code == 137 and f"rank 1 on {platform.node()} was ended by SIGKILL" in text


def test_a_rank_that_the_launcher_ends_keeps_nobody_waiting() -> None:
    program = "import time; print(1, flush=True); time.sleep(60)"
    words = [sys.executable, one_rank.__file__, "60", "", sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as outliving:
        assert outliving.stdout is not None and outliving.stdout.readline() == "1\n"
        outliving.send_signal(signal.SIGTERM)
        assert outliving.wait(100) == 143


SAY = """
import os, pathlib, sys
folder = os.environ["RLX_LAUNCH_FOLDER"]
pathlib.Path(folder, "rank-1").write_text(sys.argv[1])
os._exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("word", "code", "other", "said"),
    [
        ("joined", 0, "joined", "rank 1 on .* ended with code 0 without leaving the others"),
        ("joined", 3, "joined", "rank 1 on .* ended with code 3 without leaving the others"),
        ("started", 0, "waits", "rank 1 on .* ended with code 0 without calling rlx.distributed.initialize"),
        ("started", 0, "started", None),
        ("left", 0, "joined", None),
        ("left", 3, "joined", None),
    ],
)
def test_a_rank_that_ends_without_leaving_fails_the_job(
    word: str, code: int, other: str, said: str | None, tmp_path: Path
) -> None:
    (tmp_path / "rank-0").write_text(other)
    found, text = wrapped(1, tmp_path, SAY, word, str(code))
    if said is None:
        assert (found, text) == (code, "")
    else:
        assert found == (code or 1)
        assert re.search(said, text)
    assert (tmp_path / "rank-1").read_text() == "ended"


def test_the_last_rank_removes_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "rank-1").write_text("started")
    assert wrapped(0, folder, "") == (0, "") and folder.exists()
    assert wrapped(1, folder, "") == (0, "") and not folder.exists()


CHILD = """
import time
print("begun", flush=True)
time.sleep(1000)
"""


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_rank_outlives_its_wrapper(number: int) -> None:
    words = [sys.executable, one_rank.__file__, "60", "", sys.executable, "-c", CHILD]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as outliving:
        assert outliving.stdout is not None
        outliving.stdout.readline()
        outliving.send_signal(number)
        assert outliving.stdout.read() == ""  # until the rank has ended, too
        assert outliving.wait(100) != 0


@pytest.mark.thorough
@linux
def test_a_wrapper_does_not_outlive_its_launcher() -> None:
    """Not even with a rank that ignores signals."""
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + CHILD
    words = [sys.executable, one_rank.__file__, "60", "", sys.executable, "-c", ignoring]
    launcher = f"import subprocess; subprocess.Popen({words!r}).wait()"
    with subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        started.stdout.readline()
        started.kill()
        assert started.stdout.read() == ""  # until the last of them has ended


@posix
def test_leftovers_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(leftovers, "unused_memory", lambda: [])
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    machine, _, start = own_mark().split("-")
    own, foreign = leftovers.launch_folder(), tmp_path / f"rlx-launch-0123456789ab-{ended.pid}-{start}"
    gone = tmp_path / f"rlx-launch-{machine}-{ended.pid}-{start}"
    again = tmp_path / f"rlx-launch-{machine}-{os.getpid()}-1"  # a process that had the number before this one
    for folder in (own, foreign, gone, again, tmp_path / "rlx-launch-other"):
        folder.mkdir()
    leftovers.remove_leftovers()
    assert own.exists() and foreign.exists() and (tmp_path / "rlx-launch-other").exists()
    assert not gone.exists() and again.exists() != sys.platform.startswith("linux")


@linux
def test_memory_that_no_process_uses(tmp_path: Path) -> None:
    """It is open, mapped, another user's, or unused."""
    files = [tmp_path / f"mpich_shm_{name}" for name in ("open", "mapped", "unused", "child")]
    for file in (*files, tmp_path / "other"):
        file.write_bytes(b"0" * 4096)
    old = time.time() - 7200  # where only a container's processes are seen, younger ones stay
    for file in files:
        os.utime(file, (old, old))
    code = f"""
import mmap, sys
with open({str(files[1])!r}, "r+b") as file:
    found = mmap.mmap(file.fileno(), 0)
print(1, flush=True)
sys.stdin.read()
"""
    with (
        open(files[0], "rb"),
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        assert sorted(leftovers.unused_memory(tmp_path)) == sorted(files[2:])
        child.communicate()
    assert sorted(leftovers.unused_memory(tmp_path)) == sorted(files)


WAITS = """
import time
from rlx.distributed.arrivals import watched
with watched(0, 3, 0.2):
    time.sleep(1000)
"""


@pytest.mark.thorough
def test_a_start_that_waits_says_for_whom_and_ends(tmp_path: Path) -> None:
    for rank, word in enumerate(("started", "waits", "started")):
        (tmp_path / f"rank-{rank}").write_text(word)
    for folder, who in ((str(tmp_path), "rank 2"), (str(tmp_path / "none"), "the others")):
        done = subprocess.run(
            [sys.executable, "-c", WAITS], env=os.environ | {arrivals.VARIABLE: folder}, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert f"Rank 0 of 3 waited 0.2 s in rlx.distributed.initialize() for {who}." in done.stderr


def test_ranks_of_other_machines_are_named_where_those_of_this_one_have_come(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}").write_text("waits")
    assert "for ranks 2, 3.\n" in arrivals.absence(0, 4, 5.0, tmp_path)
    (tmp_path / "rank-1").write_text("ended")
    assert "for rank 1. The program of rank 1 has ended" in arrivals.absence(0, 4, 5.0, tmp_path)


def test_what_ranks_say_is_what_their_wrappers_read() -> None:
    words = arrivals.VARIABLE, arrivals._WAITS, arrivals._JOINED, arrivals._ENDED
    assert (one_rank._FOLDER, one_rank._WAITS, one_rank._JOINED, one_rank._ENDED) == words
