#!/usr/bin/env bash
# Every bench that needs a GPU, each in a process of its own, so that one that breaks ends no other.
#
#   bash benchmarks/h200.sh [FOLDER] [SECONDS]
#
# Leaves FOLDER/DATE-speed-*.json, each whole after every row, and the picture of growth; ends after SECONDS at the latest.

cd "$(dirname "$0")/.." || exit 2
folder=${1:-benchmarks/results}
seconds=${2:-345}
export PYTHONPATH=src PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
python=${PYTHON:-python3}
mkdir -p "$folder" || exit 2

run() { # file, share of what is left in percent, benches
  local file="$folder/$(date +%F)-speed-$1.json" left=$(((seconds - SECONDS) * $2 / 100))
  shift 2
  if ((left < 10)); then
    echo "== $*: no time left"
    return
  fi
  echo "== $* (at most $left s)"
  timeout --kill-after=5 "$left" "$python" -m crossling bench "$@" --json -o "$file"
  echo "== $*: status $?, $SECONDS s since the start"
}

run parts 35 attention head
run step 75 step
run recipes 75 recipes
run growth 75 growth
run sentences 100 encode evaluate
"$python" benchmarks/speed.py "$folder/$(date +%F)"-speed-*.json
