"""The process hetero-train that runs next to this rank."""
import atexit
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from typing import Any, Dict, List, Optional

from .errors import BridgeError, ProgramNotFoundError, SettingsError

PROTOCOL = 1  # version of the messages, see docs/pytorch.md


def find_program() -> str:
    """Returns the path of hetero-train: from HETERO_TRAIN, PATH, or the folder of scripts of this Python."""
    named = os.environ.get("HETERO_TRAIN")
    if named:
        if os.access(named, os.X_OK) and not os.path.isdir(named):
            return named
        raise ProgramNotFoundError(
            f"HETERO_TRAIN names {named!r}, which is not a program: set it to the path of hetero-train")
    found = shutil.which("hetero-train")
    if found:
        return found
    for folder in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable)):
        path = os.path.join(folder or "", "hetero-train")
        if os.access(path, os.X_OK):
            return path
    raise ProgramNotFoundError(
        "the program hetero-train is not in PATH: install its wheel with pip, add its folder to PATH, "
                               "or set HETERO_TRAIN to its path (docs/install.md)")


class Bridge:
    """A conversation with hetero-train: one JSON object per line.

    timeout is the longest wait for an answer, in s.
    """

    def __init__(self, timeout: float, log_level: str = "info") -> None:
        self.timeout = timeout
        self.ended = False
        self._buffer = b""
        path = find_program()
        try:
            # A session of its own: Ctrl-C reaches Python only, which then ends the run in order.
            self._process = subprocess.Popen([path, "bridge", "--log-level", log_level], stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
        except OSError as e:
            raise ProgramNotFoundError(
                f"{path} cannot be started ({e}): install hetero-train for this machine, or set HETERO_TRAIN") from e
        self._select = selectors.DefaultSelector()
        self._select.register(self._process.stdout, selectors.EVENT_READ)
        self._owner = os.getpid()
        atexit.register(self.kill)

    def send(self, type: str, **values: Any) -> None:
        """Sends a message. NaN and infinite numbers must already be None."""
        line = json.dumps({"type": type, **values}, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        try:
            view = memoryview(line)
            while view:
                view = view[self._process.stdin.write(view):]
        except (OSError, ValueError) as e:
            raise self._error(self._last_words()) from e

    def receive(self) -> Dict[str, Any]:
        """Returns the next message. An error of the program becomes an exception."""
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not self._select.select(left):
                self.ended = True
                self._process.kill()  # it would not end by itself, and the end of the script would wait for it again
                raise BridgeError(f"hetero-train has not answered for {self.timeout:.0f} s: its disk may hang; see logs/train.log in the folder of the run")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise self._error("")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict) or "type" not in message:
            raise BridgeError(
                f"hetero-train answered {line[:80]!r}, which is no message: HETERO_TRAIN or PATH names another program")
        if message["type"] == "error":
            self.ended = True
            kind = SettingsError if message.get("code") == 2 else BridgeError
            raise kind(message.get("message", "unknown error"))
        return message

    def expect(self, type: str) -> Dict[str, Any]:
        """Returns the next message, which must have this type."""
        message = self.receive()
        if message["type"] != type:
            raise BridgeError(f"hetero-train answered {message['type']!r}, want {type!r}: install the package and the program from one release")
        return message

    def _last_words(self) -> str:
        try:
            self.receive()
        except SettingsError as e:
            return str(e)
        except BridgeError as e:
            return str(e)
        return ""

    def _error(self, said: str) -> BridgeError:
        self.ended = True
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        if code is not None and code < 0:
            text = (f"hetero-train was killed by signal {-code} ({signal.strsignal(-code)}): for example by the kernel, "
                    "if the memory of the machine ran out")
        elif code is None:
            text = "hetero-train has closed its output: HETERO_TRAIN or PATH may name another program"
        else:
            text = (f"hetero-train has ended with exit code {code}: its messages on standard error name the cause; "
                    "the program and the package must be of one release")
        return BridgeError(said or text)

    def close(self, timeout: float = 30.0) -> None:
        """Closes the streams and waits for the end of the process, at most timeout s."""
        self.ended = True
        atexit.unregister(self.kill)
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except OSError:
                pass
        self._select.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """Ends the process at the end of Python."""
        if os.getpid() == self._owner:  # not in a forked data worker
            self.close(10.0)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid


def toml(value: Any) -> str:
    """Returns a Python value as the text of a setting."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json.dumps(v) if isinstance(v, str) else toml(v) for v in value) + "]"
    return str(value)


def settings_text(settings: Dict[str, Any]) -> Dict[str, str]:
    """Returns settings as texts."""
    return {key: toml(value) for key, value in settings.items()}


def numbers(values: List[float]) -> List[Optional[float]]:
    """Returns floats for JSON: None for NaN and infinity."""
    return [v if v - v == 0 else None for v in values]
