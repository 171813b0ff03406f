#!/bin/sh
# Builds and runs the measurements: run_micro.sh FOLDER [SECONDS]
#
# Writes micro.jsonl and what the programs said (log.txt) to FOLDER. After SECONDS (100) it starts
# nothing more, and what runs is ended. Needs gcc alone; python3 with PyTorch for the last part.
# Exits with 77 and "no GPU" without one.
folder=$1 seconds=${2:-100}
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mkdir -p "$folder" || exit 2
file=$folder/micro.jsonl log=$folder/log.txt
end=$(($(date +%s) + seconds))

left()
{
    left=$((end - $(date +%s)))
    [ "$left" -gt 0 ] || left=1
}

compiler=$(command -v gcc || command -v cc || command -v clang)
"$compiler" -std=gnu11 -O2 -I "$here/../../src" "$here"/micro*.c -o "$build/micro" \
    -ldl -lpthread -lm >>"$log" 2>&1 || { cat "$log"; exit 1; }
"$compiler" -std=gnu11 -O2 -shared -fPIC -I "$here/../../src" "$here/managed_pool.c" \
    -o "$build/pool.so" -ldl -lpthread >>"$log" 2>&1 || cat "$log"

left
timeout -k 5 "$left" "$build/micro" "$file" "$here/kernels.ptx" >>"$log" 2>&1
result=$?
if [ "$result" -eq 77 ]; then
    echo "no GPU"
    exit 77
fi
echo "micro: $result, $(($(date +%s) - end + seconds)) s" | tee -a "$log"
for case in plain managed nocache; do
    left
    [ "$left" -gt 5 ] || break
    [ "$left" -lt 45 ] || left=45
    timeout -k 5 "$left" python3 "$here/torch_micro.py" "$file" "$case" "$build/pool.so" \
        >>"$log" 2>&1
    echo "torch $case: $?, $(($(date +%s) - end + seconds)) s" | tee -a "$log"
done
exit 0
