# ===- logs/plan.py - The name of a log ----------------------------- ===#
#
# Part of the Intarsia project, under the Apache License v2.0 with LLVM
# Exceptions. See LICENSE for license information.
#
# ===----------------------------------------------------------------------===#
"""What will run, one line a step; see `intarsia.logs`."""
