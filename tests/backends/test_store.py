"""Native code on disk: warm starts, damage, foreign folders, full disks, two threads at once."""

from __future__ import annotations

import ctypes
import os
import stat
import threading
import warnings

import pytest
from native_plans import run_python

from rlx.backends.cpu.runtime import store as store_module
from rlx.backends.cpu.runtime.compile import compile_ir
from rlx.backends.cpu.runtime.store import CodeStore, StoreCounts, user_folder

SYMBOL = "answer"
TEXT = "define i64 @answer() {\nret i64 42\n}\n"


def fill(store, key=b"key"):
    return store.address(key, SYMBOL, lambda: TEXT)


def never():
    raise AssertionError("compiled again")


def test_one_compilation_per_key(tmp_path):
    store = CodeStore(tmp_path / "new")
    address = fill(store)
    assert store.address(b"key", SYMBOL, never) == address
    assert store.statistics() == StoreCounts(compiled=1, loaded=0, hits=1)


def test_a_second_process_reads_the_disk(tmp_path):
    fill(CodeStore(tmp_path / "new"))
    store = CodeStore(tmp_path / "new")
    assert store.address(b"key", SYMBOL, never)
    assert store.statistics() == StoreCounts(0, 1, 0)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (file,) = (tmp_path / "new").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign", "longer"])
def test_damaged_files_are_built_again(tmp_path, damage):
    fill(CodeStore(tmp_path))
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-20] ^= 1
    content = {
        "truncate": data[:-5], "flip": data, "empty": b"", "foreign": b"x" * 500,
        "longer": data + b"x",
    }[damage]  # fmt: skip
    file.write_bytes(content)
    store = CodeStore(tmp_path)
    fill(store)
    assert store.statistics() == StoreCounts(1, 0, 0)
    assert CodeStore(tmp_path).address(b"key", SYMBOL, never)


def test_a_file_that_cannot_be_replaced_does_not_matter(tmp_path):
    fill(CodeStore(tmp_path))
    (file,) = tmp_path.iterdir()
    file.unlink()
    file.mkdir()
    (file / "full").touch()
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        assert fill(CodeStore(tmp_path))


def test_a_folder_that_others_can_write_is_refused_once(tmp_path):
    tmp_path.chmod(0o777)
    store = CodeStore(tmp_path)
    with pytest.warns(RuntimeWarning, match="can be written by other users"):
        fill(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fill(store, b"other")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        fill(CodeStore(tmp_path))


def test_no_folder_can_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(RuntimeWarning, match="cannot be made"):
        fill(CodeStore(tmp_path / "file" / "folder"))


def test_a_full_disk(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    store = CodeStore(tmp_path)
    with pytest.warns(RuntimeWarning, match="No space left"):
        fill(store)
    fill(store, b"other")
    assert store.statistics().compiled == 2
    assert not list(tmp_path.iterdir())


def test_the_folder_stays_under_its_limit(tmp_path):
    store = CodeStore(tmp_path, limit=3000)
    for number in range(12):
        fill(store, b"%d" % number)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 3000
    assert CodeStore(tmp_path).address(b"11", SYMBOL, never)


def test_eviction_leaves_files_of_others(tmp_path):
    """However large and old they are."""
    thesis, notes = tmp_path / "thesis.bin", tmp_path / "notes.txt"
    thesis.touch()
    os.truncate(thesis, 2 << 30)
    notes.write_text("mine")
    for file in (thesis, notes):
        os.utime(file, (1, 1))
    store = CodeStore(tmp_path, limit=3000)
    for number in range(12):
        fill(store, b"%d" % number)
    assert thesis.stat().st_size == 2 << 30 and notes.read_text() == "mine"
    assert sum(file.stat().st_size for file in tmp_path.glob("*.o")) <= 3000


@pytest.mark.selected("all")
@pytest.mark.parametrize("differ", ["key", "symbol", "compiler"])
def test_a_file_under_another_name_is_built_again(tmp_path, monkeypatch, differ):
    """A file is bound to its key, its symbol and the compiler: exchanged ones, of equal symbols too, are not run."""
    keys = [b"one", b"two"] if differ == "key" else [b"one", b"one"]
    symbols = ["f", "g"] if differ == "symbol" else ["f", "f"]
    modules = [Module(n) for n in (1, 2)]
    contents = []
    for number, (module, key, symbol) in enumerate(zip(modules, keys, symbols, strict=True)):
        module.key, module.ir, module.symbol = key, module.ir.replace(module.symbol, symbol), symbol
        if differ == "compiler" and number:
            monkeypatch.setattr(store_module, "fingerprint", lambda: b"another")
        folder = tmp_path / str(number)
        CodeStore(folder).address(module.key, module.symbol, lambda module=module: module.ir)
        (file,) = folder.iterdir()
        contents.append((file, file.read_bytes()))
    (second, own), (_, foreign) = contents[1], contents[0]
    second.write_bytes(foreign)
    store = CodeStore(second.parent)
    assert store._checked(foreign, modules[1].key, modules[1].symbol) is None
    address = store.address(modules[1].key, modules[1].symbol, lambda: modules[1].ir)
    assert store.statistics() == StoreCounts(1, 0, 0)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == 2
    assert second.read_bytes() == own


@pytest.mark.thorough
def test_parts_of_the_run_time_system_that_are_exchanged(tmp_path):
    """They define the same symbol, so that each passes for the other."""
    text = """
import sys, numpy as np
import rlx, rlx.numpy as jnp
print(rlx.jit(lambda a: rlx.lax.fori_loop(0, 3, lambda i, c: jnp.sort(c @ a), a).sum())(np.eye(64)))
"""
    assert run_python(text, RLX_CACHE_DIR=str(tmp_path)).stdout == "64.0\n"
    parts = [file for file in (tmp_path / "native").iterdir() if b"rlx_runtime" in file.read_bytes()]
    assert len(parts) > 1
    contents = [file.read_bytes() for file in parts]
    for file, content in zip(parts, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    done = run_python(text, RLX_CACHE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
    assert [file.read_bytes() for file in parts] == contents


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_what_stops_one_thread_does_not_reach_others(tmp_path, error):
    """They wait for the code that it was making, and make it themselves."""
    store, begun, waiting = CodeStore(tmp_path), threading.Event(), threading.Event()
    found = []

    def stopped():
        begun.set()
        waiting.wait(100)
        raise error

    def wait():
        begun.wait(100)
        waiting.set()
        found.append(fill(store))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(error):
        store.address(b"key", SYMBOL, stopped)
    for thread in threads:
        thread.join(100)
    assert len(found) == 3 and len(set(found)) == 1
    assert store.statistics() == StoreCounts(1, 0, 2)


def test_two_threads_compile_once(tmp_path, monkeypatch):
    compiled = []
    original = store_module.compile_ir

    def slowly(ir, symbol):
        compiled.append(symbol)
        threading.Event().wait(0.05)
        return original(ir, symbol)

    monkeypatch.setattr(store_module, "compile_ir", slowly)
    store = CodeStore(tmp_path)
    addresses = []
    threads = [threading.Thread(target=lambda: addresses.append(fill(store))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1
    assert len(set(addresses)) == 1


def test_an_error_reaches_every_caller_and_is_not_kept(tmp_path):
    store = CodeStore(tmp_path)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            store.address(b"key", SYMBOL, lambda: "nonsense")
    assert fill(store)


def test_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    assert user_folder() == tmp_path / "native"
    monkeypatch.delenv("RLX_CACHE_DIR")
    monkeypatch.setenv("RLX_CACHE", "0")
    assert user_folder() is None
    monkeypatch.setenv("RLX_CACHE", "1")
    assert user_folder().name == "native"


def test_a_warm_process_compiles_nothing_and_numba_is_never_imported(tmp_path):
    text = """
import sys, numpy as np
from native_plans import add_plan, counting_plan, native
native(add_plan(10), np.ones(10, np.float32), np.ones(10, np.float32))
native(counting_plan(5), np.zeros(1, np.int64))
from rlx.backends.cpu.runtime import store
print(store.statistics().compiled, "numba" in sys.modules)
"""
    first = run_python(text, RLX_CACHE_DIR=str(tmp_path))
    assert first.stdout == "4 False\n", first.stderr
    second = run_python(text, RLX_CACHE_DIR=str(tmp_path))
    assert second.stdout == "0 False\n", second.stderr
    without = run_python(text, RLX_CACHE="0")
    assert without.stdout == "4 False\n", without.stderr


class Module:
    """A code to compile: a function that answers a number."""

    def __init__(self, number: int, text: str | None = None) -> None:
        self.key = str(number).encode()
        self.symbol = f"answer{number}"
        self.ir = text or f"define i64 @{self.symbol}() {{\nret i64 {number}\n}}\n"


def ask(store, module):
    address = store.address(module.key, module.symbol, never)
    return ctypes.CFUNCTYPE(ctypes.c_int64)(address)()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_codes_are_compiled_together(tmp_path, monkeypatch, threads):
    monkeypatch.setattr(store_module, "get_num_threads", lambda: threads)
    store = CodeStore(tmp_path)
    modules = [Module(n) for n in range(8)]
    store.prepare([*modules, *modules])
    assert store.statistics() == StoreCounts(8, 0, 0)
    assert [ask(store, m) for m in modules] == list(range(8))
    warm = CodeStore(tmp_path)
    warm.prepare([*modules, Module(9)])
    assert warm.statistics() == StoreCounts(1, 8, 0)


def test_an_error_of_a_prepared_code_comes_with_its_address():
    store = CodeStore(None)
    good, bad = Module(1), Module(2, "define nonsense")
    store.prepare([bad, good])
    assert ask(store, good) == 1
    with pytest.raises(RuntimeError, match="parsing"):
        store.address(bad.key, bad.symbol, lambda: bad.ir)


def test_ill_formed_code_is_refused():
    wrong = "define i64 @f(i1 %c) {\nbr i1 %c, label %a, label %b\na:\n%x = add i64 1, 2\n"
    with pytest.raises(RuntimeError):
        compile_ir(wrong + "br label %b\nb:\nret i64 %x\n}\n", "f")
