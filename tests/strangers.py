"""Others on the same machine who listen where a daemon was."""

import contextlib
import socket
import threading


class Stranger:
    """Listens on a port, keeps what it hears and answers each request in the same way.

    `answer`: bytes, or a function from what was heard on a connection to bytes.
    """

    def __init__(self, port=0, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"):
        self._listener = socket.create_server(("127.0.0.1", port))
        self._answer = answer
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.heard = b""
        self._threads = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._talk, args=(line,)))
            self._threads[-1].start()

    def _talk(self, line):
        with line, contextlib.suppress(OSError):
            while data := line.recv(1 << 16):
                self.heard += data
                if data.endswith(b"\r\n\r\n"):
                    line.sendall(self._answer(data) if callable(self._answer) else self._answer)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def listening(*args, **options):
    """A stranger for the length of a block."""
    stranger = Stranger(*args, **options)
    try:
        yield stranger
    finally:
        stranger.close()
