#!/bin/bash
# From text to a model under Slurm, each job after the one before:  examples/slurm/submit.sh [SBATCH OPTIONS]
#
# CORPORA, VOCAB, SHARDS, RECIPE and OUT name the folders and the recipe, as in the three batch scripts. SIZE is the number
# of vocabulary entries, PARTS the number of jobs that read text. Everything is on a file system that all machines see.

set -eu
cd "$(dirname "$0")"
export PARTS=${PARTS:-64}

submit() { # the jobs that must have ended well, then script and options
    local after=$1
    shift
    sbatch --parsable --chdir="$OLDPWD" ${after:+--dependency=afterok:$after} "$@"
}

vocab=$(submit "" --array="1-$PARTS" "$@" vocab.sbatch --size "${SIZE:-250000}")
tokens=$(submit "$vocab" --array="1-$PARTS" "$@" tokenize.sbatch)
run=$(submit "$tokens" "$@" pretrain.sbatch)
echo "vocab $vocab, tokenize $tokens, pretrain $run"
