#!/bin/bash
# The demonstration: two training runs, compared to the last digit.
#
#   examples/demo.sh [path of ebb]
#
# Run one is ResNet-50 under the best tuned allocator (jemalloc, huge pages, no memory returned),
# with an independent count of its allocations. Run two is the same command under `ebb run`. Its
# budget is 60 % of that peak in bytes, so it is in force from the first allocation. The exit code
# is 0 only if every loss is the same, digit by digit. Then ebb-train does likewise on Fashion-MNIST
# (fashion.py). Takes 1 to 5 minutes.
set -u
here=$(cd "$(dirname "$0")" && pwd)
ebb=${1:-$here/../build/release/bin/ebb}
iterations=${EBB_DEMO_ITERATIONS:-8}
share=${EBB_DEMO_SHARE:-60} # per cent
model=${EBB_DEMO_MODEL:-resnet50} batch=${EBB_DEMO_BATCH:-16} size=${EBB_DEMO_SIZE:-224}
store=${EBB_DEMO_STORE:-}
python=/usr/bin/python3
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)} LC_ALL=C

fail() { echo "demo: $*" >&2; exit 1; }
[ -x "$ebb" ] || fail "$ebb is missing: run 'make build'"
counter=$(dirname "$ebb")/../bench/libmalloc_log_preload.so
[ -e "$counter" ] || fail "$counter is missing: run 'make build'"
jemalloc=$(ls /usr/lib/*/libjemalloc.so.2 2>/dev/null | head -n 1)
[ -n "$jemalloc" ] || fail "libjemalloc2 is missing: run 'make deps'"
"$python" -c 'import torchvision' 2>/dev/null || fail "PyTorch is missing: run 'make deps'"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# measured SECONDS PREFIX COMMAND...: shows and stores the output, and writes the peak RSS by wait4
# to PREFIX.rss. After SECONDS it sends SIGINT, so that a slow machine does fewer iterations. If the
# command does not end, it is killed.
measured() {
    "$python" - "$@" <<'PYTHON'
import os, signal, subprocess, sys, threading
limit, prefix, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
with open(prefix + ".err", "wb") as errors:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors,
                               start_new_session=True)
    timers = [threading.Timer(limit + later, os.killpg, (process.pid, number))
              for later, number in ((0, signal.SIGINT), (15, signal.SIGKILL))]
    for timer in timers:
        timer.start()
    with open(prefix + ".out", "wb") as out:
        for line in process.stdout:
            out.write(line)
            print("  " + line.decode().rstrip(), flush=True)
    _, status, usage = os.wait4(process.pid, 0)
    for timer in timers:
        timer.cancel()
with open(prefix + ".rss", "w") as rss:
    rss.write(str(usage.ru_maxrss * 1024))
code = os.waitstatus_to_exitcode(status)
sys.exit(code if code >= 0 else 128 - code)
PYTHON
}

command=("$python" "$here/torch_train.py" --model "$model" --batch "$batch" --size "$size")

echo "1. $model, batch $batch, ${size}x$size, as it is: jemalloc + huge pages"
measured 110 "$work/a" env LD_PRELOAD="$counter:$jemalloc" EBB_MALLOC_LOG="$work/log.json" \
    EBB_LOG_THRESHOLD=524288 MALLOC_CONF=thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1 \
    "${command[@]}" --iterations "$iterations"
done_count=$(grep -c '^iteration ' "$work/a.out")
if [ "$done_count" -lt "$iterations" ]; then
    [ "$done_count" -ge 3 ] || { cat "$work/a.err" >&2; fail "the program ended by itself"; }
    echo "   (slow machine: $done_count iterations)"
    iterations=$done_count
fi
[ -s "$work/log.json" ] || fail "the count of allocations is missing"
peak=$("$python" -c 'import json,sys; print(json.load(open(sys.argv[1]))["threshold_peak_bytes"])' \
    "$work/log.json")
budget=$((peak * share / 100))

echo "2. the same in $share % of its memory: ebb run --budget $budget"
measured 170 "$work/b" "$ebb" run --budget "$budget" ${store:+--store "$store"} --no-cache \
    --summary=always --summary-json "$work/summary.json" -- "${command[@]}" \
    --iterations "$iterations"
code=$?
sed 's/^/   /' "$work/b.err"
[ "$code" != 137 ] || fail "the second run did not end in time and was killed"
[ -s "$work/summary.json" ] || fail "ebb run ended with $code and gave no summary"

"$python" - "$work" "$peak" "$budget" "$code" <<'PYTHON'
import json, statistics, sys
work, peak, budget, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
summary = json.load(open(f"{work}/summary.json"))

def losses_and_seconds(name):
    rows = [line.split() for line in open(f"{work}/{name}.out") if line.startswith("iteration ")]
    return [row[3] for row in rows], [float(row[5]) for row in rows]

(losses_a, seconds_a), (losses_b, seconds_b) = losses_and_seconds("a"), losses_and_seconds("b")
first = summary.get("planned_from_iteration")
planned = first is not None and first < len(seconds_b) - 1
first = first if planned else min(2, len(seconds_b) - 1)
equal = code == 0 and losses_a == losses_b and len(losses_a) > 0

def mib(value):
    return "-" if value is None else f"{int(value) / 2**20:,.0f} MiB"

def row(name, managed, rss, seconds, losses):
    print(f"   {name:<22}{managed:>18}{rss:>14}{seconds:>22}  {losses}")

print("\n3. side by side")
row("", "managed peak", "peak RSS", "median s/iteration", "losses")
row("as it is", mib(peak), mib(open(f"{work}/a.rss").read()),
    f"{statistics.median(seconds_a[first:]):.3f}" if seconds_a[first:] else "-", "reference")
row("ebb run", mib(summary.get("peak_resident_bytes")), mib(open(f"{work}/b.rss").read()),
    f"{statistics.median(seconds_b[first:]):.3f}" if seconds_b[first:] else "-",
    "equal" if equal else "DIFFER")
print(f"   budget {mib(budget)}; medians over iterations {first} to {len(seconds_b) - 1}"
      + ("" if planned else "; no plan was in force for them"))
if (summary.get("peak_resident_bytes") or 0) > budget:
    print("   demo: the budget was exceeded")
    equal = False
if not equal:
    print(f"   demo: FAILED (exit code of the second run: {code})")
sys.exit(0 if equal else 1)
PYTHON
status=$?

train=$(dirname "$ebb")/ebb-train
if [ -x "$train" ]; then
    echo
    echo "4. a trainer in C that owns its tensors: Fashion-MNIST in 40 % of its memory"
    "$python" "$here/fashion.py" --train "$train" --epochs "${EBB_DEMO_EPOCHS:-1}" \
        --svg "$(dirname "$ebb")/../fashion.svg" || status=1
fi
exit "$status"
