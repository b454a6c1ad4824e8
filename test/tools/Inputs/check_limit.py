"""No room for the output: check_limit.py BYTES COMMAND..., whose files end there.

The command must fail with status 5 and leave no file in its working folder.
"""

import os
import resource
import subprocess
import sys

limit, *command = sys.argv[1:]
before = set(os.listdir())
done = subprocess.run(
    command,
    stderr=subprocess.PIPE,
    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit),) * 2),
)
assert done.returncode == 5, done
assert b"File too large" in done.stderr or b"cannot be written" in done.stderr, done.stderr
assert set(os.listdir()) == before, set(os.listdir()) - before
