"""An upstream with a real database. Each write is made by the statements of the documentation, which check the fencing
token; one that is told to stall makes its write only when it is told to go on."""

import http.server
import sqlite3
import sys
import threading

CREATE_ACCOUNT, WRITE_ACCOUNT, CREATE_FENCE, TAKE_FENCE = sys.argv[1:]

database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
lock = threading.Lock()
go_on = threading.Semaphore(0)
stalled = 0

database.execute(CREATE_ACCOUNT)
database.execute(CREATE_FENCE)
database.execute("INSERT INTO account (id, balance) VALUES ('/row', 0)")
database.execute("CREATE TABLE document (line TEXT NOT NULL)")


def write_row(path, amount, fence):
    """The resource is one row, which holds its token."""
    return database.execute(WRITE_ACCOUNT, {"id": path, "amount": amount, "fence": fence}).rowcount == 1


def write_rows(path, amount, fence):
    """The resource is several rows: its token stands apart, and is taken in the same transaction."""
    database.execute("BEGIN IMMEDIATE")
    taken = database.execute(TAKE_FENCE, {"resource": path, "fence": fence}).rowcount == 1
    if taken:
        database.execute("INSERT INTO document (line) VALUES (?)", [amount])
    database.execute("COMMIT" if taken else "ROLLBACK")
    return taken


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self):
        global stalled
        if self.headers.get("x-stall"):
            with lock:
                stalled += 1
            go_on.acquire()
        write = write_row if self.path == "/row" else write_rows
        with lock:
            written = write(self.path, int(self.headers["x-amount"]), int(self.headers["fencing-token"]))
        self.answer(200 if written else 409, "")

    def do_GET(self):
        if self.path == "/go":
            go_on.release()
        with lock:
            balance = database.execute("SELECT balance FROM account").fetchone()[0]
            lines = [row[0] for row in database.execute("SELECT line FROM document")]
        self.answer(200, f"{stalled} {balance} {','.join(lines)}")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"port {server.server_address[1]}", flush=True)
server.serve_forever()
