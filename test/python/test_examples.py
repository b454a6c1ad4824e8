"""What the README tells people to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_scaled_tanh():
    result = subprocess.run(
        [sys.executable, ROOT / "examples" / "scaled_tanh.py"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "equal to eager" in result.stdout
