#!/bin/sh
# A job without GavelIterator: it keeps its own count in its checkpoint directory and saves it when it gets SIGTERM.
# Usage: plain.sh [STEPS]
set -eu

directory=${GAVEL_CHECKPOINT_DIR:-.}
steps=${GAVEL_STEPS:-${1:-20}}
file=$directory/count
mkdir -p "$directory"

count=0
[ -f "$file" ] && count=$(cat "$file")

save() { # the file is replaced atomically
    echo "$count" >"$file.new" && mv "$file.new" "$file"
}

trap 'save; echo "leaving at $count"; exit 143' TERM

echo "beginning at $count"
while [ "$count" -lt "$steps" ]; do
    sleep 0.1 & # the work of a step; in the background so that the signal does not wait for it
    wait $! || true
    count=$((count + 1))
    echo "step $count"
done
save
echo "counted to $count"
