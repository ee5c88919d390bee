"""The command line. Each command parses its options and calls one public function.

Exit codes: 0 success, 1 failure, 2 bad input (one line, no traceback), 130 interrupted (the same command resumes).
"""

from crossling.cli.app import app, main

__all__ = ["app", "main"]
