"""A terminal on the guest's second serial line, where a root shell waits."""

import os
import pathlib
import selectors
import socket
import sys
import termios
import tty

LEAVE = b"\x1d"  # Ctrl-]


def attach(path: pathlib.Path) -> None:
    """Joins this terminal with the guest's until Ctrl-] or the guest's end."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(str(path))
    print("root shell of the guest; the checks are in /run/share. Ctrl-] ends it.", flush=True)
    source = sys.stdin.fileno()
    before = termios.tcgetattr(source) if os.isatty(source) else None
    try:
        if before:
            tty.setraw(source)
        link.sendall(b"\n")
        _relay(link, source)
    finally:
        if before:
            termios.tcsetattr(source, termios.TCSADRAIN, before)
        link.close()
        print()


def _relay(link: socket.socket, source: int) -> None:
    events = selectors.DefaultSelector()
    events.register(link, selectors.EVENT_READ)
    events.register(source, selectors.EVENT_READ)
    while True:
        for ready, _ in events.select():
            if ready.fileobj is link:
                received = link.recv(4096)
                if not received:
                    return
                os.write(sys.stdout.fileno(), received)
            else:
                typed = os.read(source, 4096)
                if LEAVE in typed or not typed:
                    return
                link.sendall(typed)
