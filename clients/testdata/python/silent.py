# A server that neither speaks nor reads any more is given up; a write to it ends, and another connection follows.
import socket
import threading
import time

from penstock import nats

nats.SILENCE = 0.2
server = socket.create_server(("127.0.0.1", 0))


def connection():
    """Greets a client, and returns its connection and what it says."""
    s, _ = server.accept()
    s.sendall(b"INFO {}\r\n")
    lines = s.makefile("rb")
    lines.readline(), lines.readline()
    s.sendall(b"PONG\r\n")
    return s, lines


client = nats.Connection("nats://127.0.0.1:%d" % server.getsockname()[1], "silent")
silent = connection()
while not client.socket:
    time.sleep(0.01)
writer = threading.Thread(target=client.publish, args=("much", {}, bytes(32 << 20)))
writer.start()
alive, lines = connection()
writer.join()
for line in lines:
    if line == b"PING\r\n":
        break
alive.sendall(b"PONG\r\n")
print("connected again")
client.close()
