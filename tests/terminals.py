"""Commands of Rota on a terminal, as a person has them."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios

from agents_net import eventually
from daemon_process import ROTA, clean_environ


class OnTerminal:
    """A command of the command line whose input and outputs are a terminal."""

    def __init__(self, daemon, *args, rows=24, cols=80):
        self._outer, inner = os.openpty()
        self.resize(rows, cols, tell=False)
        self.process = subprocess.Popen(
            [*ROTA, *map(str, args)], stdin=inner, stdout=inner, stderr=inner,
            env=clean_environ(ROTA_STATE=daemon.state, TERM="xterm", PS1="> "),
            start_new_session=True,
        )  # fmt: skip
        os.close(inner)
        self.seen = ""

    def type(self, text):
        """What a person would."""
        os.write(self._outer, text.encode())

    def resize(self, rows, cols, *, tell=True):
        """The window has another size."""
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def sees(self, text):
        """Wait until it is on the screen; what is after it is looked at next time."""

        def there():
            hung_up = False
            try:
                if select.select([self._outer], [], [], 0.5)[0]:
                    self.seen += os.read(self._outer, 1 << 16).decode(errors="replace")
            except OSError:  # nobody has the other end any more
                hung_up = True
            assert text in self.seen or not hung_up, f"it ended: {self.seen!r}"
            return text in self.seen

        try:
            eventually(there)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    def kill(self):
        """Without warning: as if the connection broke."""
        self.process.kill()
        self.close()

    def end(self):
        """Wait for its end; the exit code."""
        code = self.process.wait(300)
        self.close()
        return code

    def close(self):
        """Leave nothing."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._outer >= 0:
            os.close(self._outer)
            self._outer = -1
