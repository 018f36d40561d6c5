"""Many seeds, in processes that may crash or hang."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

__all__ = ["Run", "Worker", "first_seed"]

PROGRAM_SECONDS = 120.0  # a program that takes longer hangs
SHRINK_SECONDS = 60.0
TELL_SECONDS = 60.0
LIFE = 250  # programs of one process
SHRUNK = 40  # findings that are shrunk in a run; the rest is counted


def first_seed(text: str) -> int:
    """A number for any text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:5], "big")


class Worker:
    """A process that checks programs."""

    def __init__(self, cache: str = "") -> None:
        root = Path(__file__).resolve().parents[2]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
        environment.setdefault("RLX_CHECK", "1")
        environment.setdefault("RLX_NUM_THREADS", "2")
        if cache:
            environment.setdefault("RLX_CACHE_DIR", cache)
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker"],
            cwd=root if __package__.startswith("tests") else root / "tests",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.answers: queue.Queue[str | None] = queue.Queue()
        self.errors: list[str] = []
        self.served = 0
        self.check = "generation"
        self.found: dict[str, Any] = {}
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)
            del self.errors[:-60]

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request; {"died": "crashes" or "hangs"} if there is none."""
        assert self.process.stdin is not None
        self.served += 1
        self.check = "generation"
        deadline = time.monotonic() + seconds
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            while True:
                line = self.answers.get(timeout=max(deadline - time.monotonic(), 0.01))
                if line is None:
                    break
                answer = json.loads(line)
                if "seed" in answer:
                    return answer
                self.check, self.found = answer["check"], answer.get("found", {})
                if self.found:
                    deadline += 2 * SHRINK_SECONDS + 60
        except queue.Empty:
            self.stop()
            return {"died": "hangs"}
        except OSError:
            pass
        self.stop()
        return {"died": "crashes"}

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@dataclasses.dataclass
class Run:
    """A run: seeds from a text on, for some seconds."""

    seed: str
    seconds: float
    processes: int = 2
    findings: str = ""
    programs: int = 0
    failed: int = 0

    def go(self) -> None:
        """Check programs until time is over, and print what fails."""
        self._known: dict[str, int] = {}
        self._lock = threading.Lock()
        self._next = first_seed(self.seed)
        self._end = time.monotonic() + self.seconds
        self._tell = time.monotonic() + TELL_SECONDS
        with tempfile.TemporaryDirectory(prefix="rlx-fuzz-") as self._cache:
            threads = [threading.Thread(target=self._serve) for _ in range(self.processes)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for signature, count in sorted(self._known.items(), key=lambda item: -item[1]):
            print(f"{count} times: {signature}")

    def _serve(self) -> None:
        worker = Worker(self._cache)
        try:
            while time.monotonic() < self._end:
                if worker.served >= LIFE or worker.process.poll() is not None:
                    worker.stop()
                    worker = Worker(self._cache)
                with self._lock:
                    seed, self._next = self._next, self._next + 1
                    request = {"known": list(self._known), "shrink": len(self._known) < SHRUNK}
                answer = worker.ask({"seed": seed, "seconds": SHRINK_SECONDS, **request}, PROGRAM_SECONDS)
                if "died" in answer:
                    answer = self._death(worker, seed, answer["died"])
                with self._lock:
                    self._note(answer)
        finally:
            worker.stop()

    def _death(self, worker: Worker, seed: int, kind: str) -> dict[str, Any]:
        """What is known of a program that a process died of."""
        if worker.found:  # while it was shrunk
            return worker.found
        signature = f"{kind} in {worker.check} at {_last_frame(worker.errors)}"
        errors = "".join(worker.errors[-30:])
        answer = {"seed": seed, "failed": True, "signature": signature, "kind": kind, "source": errors}
        if worker.check == "generation" or signature in self._known:
            return answer
        fresh = Worker(self._cache)
        request = {"seed": seed, "apart": kind, "check": worker.check, "seconds": 2 * SHRINK_SECONDS}
        found = fresh.ask(request, 8 * SHRINK_SECONDS)
        fresh.stop()
        return answer if "died" in found else {**found, "signature": signature}

    def _note(self, answer: dict[str, Any]) -> None:
        self.programs += 1
        if time.monotonic() >= self._tell:
            self._tell = time.monotonic() + TELL_SECONDS
            print(f"{self.programs} programs so far", flush=True)
        if not answer["failed"]:
            return
        self.failed += 1
        signature = answer["signature"]
        if answer["kind"] in ("differs", "wrong type"):
            signature += f" ({', '.join(answer.get('operations', ['not shrunk']))})"
        first = signature not in self._known
        self._known[signature] = self._known.get(signature, 0) + 1
        if not first:
            print(f"--- program {self.programs}, seed {answer['seed']}: {signature}, again", flush=True)
            return
        alone = f"; alone it {answer['alone']}" if "alone" in answer else ""
        head = f"--- program {self.programs}, seed {answer['seed']}: {signature}{alone}"
        text = f"{head}\n{answer.get('source', '')}"
        print(text, flush=True)
        if self.findings:
            with open(self.findings, "a") as file:
                file.write(text + "\n")


def _last_frame(errors: list[str]) -> str:
    """Where faulthandler saw Python last."""
    frames = [line.strip() for line in errors if line.lstrip().startswith("File ") and "/rlx/" in line]
    return frames[0].split("/rlx/")[-1] if frames else "?"
