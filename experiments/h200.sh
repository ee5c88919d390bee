#!/usr/bin/env bash
# Run every benchmark that needs a GPU, each in its own process, so that a failure does not stop the others.
#
#   bash experiments/h200.sh [FOLDER] [SECONDS]
#
# Writes FOLDER/DATE-speed-*.json, which are complete after every row, and the growth chart. Ends within SECONDS.

cd "$(dirname "$0")/.." || exit 2
folder=${1:-experiments/results}
seconds=${2:-345}
export PYTHONPATH=src PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
python=${PYTHON:-python3}
mkdir -p "$folder" || exit 2

run() { # file, percentage of the remaining time, benchmarks
  local file="$folder/$(date +%F)-speed-$1.json" limit=$(((seconds - SECONDS) * $2 / 100))
  shift 2
  if ((limit < 10)); then
    echo "== $*: the time is over"
    return
  fi
  echo "== $* (at most $limit s)"
  timeout --kill-after=5 "$limit" "$python" -m crossling bench "$@" --json -o "$file"
  echo "== $*: status $?, $SECONDS s since the start"
}

run parts 35 attention head
run step 75 step
run recipes 75 recipes
run growth 75 growth
run sentences 100 encode evaluate
"$python" experiments/speed.py "$folder/$(date +%F)"-speed-*.json
