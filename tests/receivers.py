"""Stand-ins for those who get messages: a web server and a mail relay, on free ports."""

import json
import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebReceiver:
    """Keeps what is posted to it: (headers, content). `answers`: statuses of the next requests."""

    def __init__(self):
        self.got = []
        self.answers = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = outer.answers.pop(0) if outer.answers else 204
                outer.got.append((dict(self.headers), body, self.path, status))
                self.send_response(status)
                if status in (301, 302):
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def contents(self, **which):
        """What was taken, decoded, with these values."""
        found = [json.loads(body) for _, body, _, status in list(self.got) if status == 204]
        return [
            each for each in found if all(each.get(key) == value for key, value in which.items())
        ]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class MailReceiver:
    """A relay that accepts everything: (sender, recipients, text)."""

    def __init__(self):
        self.got = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                self.say("220 stand-in")
                sender, to = "", []
                while line := self.rfile.readline():
                    words = line.decode().strip()
                    verb = words[:4].upper()
                    if verb == "DATA":
                        self.say("354 go on")
                        text = b""
                        while (more := self.rfile.readline()) != b".\r\n":
                            text += more
                        outer.got.append((sender, to, text.decode()))
                        self.say("250 taken")
                    elif verb == "QUIT":
                        self.say("221 bye")
                        return
                    else:
                        if verb == "MAIL":
                            sender = words.partition("<")[2].partition(">")[0]
                        elif verb == "RCPT":
                            to.append(words.partition("<")[2].partition(">")[0])
                        self.say("250 fine")

            def say(self, text):
                self.wfile.write(f"{text}\r\n".encode())

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiving(kind):
    """A receiver for the length of a block."""
    made = kind()
    try:
        yield made
    finally:
        made.close()
