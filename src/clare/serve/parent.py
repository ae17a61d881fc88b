"""Children that never outlive the process that started them."""

import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the system kill this process when the thread that started it ends, where the system can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_input() -> None:
    """End this process when its input closes, that is when its parent is gone, however it ended."""

    def wait() -> None:
        # Not through sys.stdin, whose lock a waiting thread would hold when the interpreter ends.
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
