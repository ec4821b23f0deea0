"""The second guest, which checks in the first one turn on and off. Owns its machine."""

import pathlib
from typing import Callable

from machine import Machine


class Second:
    """Use as a context manager: at exit the second guest is gone.

    The exchange is two files in the share's folder `second`: the checks write "on" or "off" into `wanted`, and `state`
    tells them "on", "off", or why it is neither."""

    def __init__(self, share: pathlib.Path, make: Callable[[], Machine]):
        self._folder = share / "second"
        self._folder.mkdir()
        self._make = make
        self._machine = None
        self._tell("off")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop()

    def attend(self) -> None:
        """Does what the checks want by now; to be called often."""
        wanted = self._wanted()
        if wanted == "on" and self._state == "off":
            self._start()
        elif wanted == "off" and self._state != "off":
            self._stop()
            self._tell("off")
        elif self._state == "on" and not self._machine.running():
            self._tell("QEMU ended; see second.qemu and second.log")

    def _wanted(self) -> str:
        try:
            return (self._folder / "wanted").read_text()
        except FileNotFoundError:
            return ""

    def _tell(self, state: str) -> None:
        self._state = state
        fresh = self._folder / "state.fresh"
        fresh.write_text(state)
        fresh.rename(self._folder / "state")

    def _start(self) -> None:
        self._machine = self._make()
        try:
            self._machine.__enter__()
        except RuntimeError as error:
            self._tell(str(error))
        else:
            self._tell("on")

    def _stop(self) -> None:
        """As if the power failed."""
        if self._machine is not None:
            self._machine.stop()
            self._machine = None
