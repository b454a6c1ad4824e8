"""What intarsia-compile shows on a terminal: check_terminal.py COMMAND..."""

import os
import pty
import subprocess
import sys

read, write = pty.openpty()
done = subprocess.run(sys.argv[1:], stderr=write, stdout=subprocess.PIPE, check=True)
os.close(write)
shown = b""
try:
    while chunk := os.read(read, 4096):
        shown += chunk
except OSError:  # the terminal's other end is closed
    pass
lines = shown.split(b"\r\033[K")
assert [line.split()[-1] for line in lines if line] == [
    *(b"read", b"import", b"normalise", b"lower", b"fuse", b"kernels", b"code", b"plan", b"write"),
], lines
assert lines[-1] == b""  # nothing is left on the line
assert b"kernel launches" in done.stdout
