"""The verbs: parse, then call one public function of the same name.

Exit status: 0 done, 1 failed, 2 bad input (one sentence, no traceback), 130 interrupted (the same command goes on).
"""

from crossling.cli.app import app, main

__all__ = ["app", "main"]
