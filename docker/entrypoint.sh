#!/bin/sh
# The commands of gpu-curate need not be preceded by its name; anything else is run as it is.
set -eu

# A user that the image does not know has no home: what is compiled or fetched goes into one of his own (mode 0700).
if [ ! -O "${HOME:-/}" ] || [ ! -w "${HOME:-/}" ]; then
  HOME=$(mktemp -d)
  export HOME
fi

case "${1:---help}" in
  run | compare)
    if [ -d runs ] && [ ! -w runs ]; then
      echo "error: $PWD/runs cannot be written by user $(id -u): make the folder before Docker does (as root)," \
        "or give its owner with --user" >&2
      exit 2
    fi
    exec gpu-curate "$@"
    ;;
  plan | status | clean | doctor | shards | tokenizer | init | config | export | samples | funnel | explain | trace | diff | \
    clusters | scurve | certificate | budget | sql | forget | ablate | judge) exec gpu-curate "$@" ;;
  -*) exec gpu-curate "${@:---help}" ;;
esac
exec "$@"
