#!/bin/sh
# All that is measured and tested on a GPU:
#   run.sh FOLDER [PART...] [--quick] [--seconds S] [--only REGEX] [--train S] [--oversubscribe]
#
# PART is micro, launches, tests or trainings; without one, all of them. See bench/gpu/run.py. Takes
# the programs from this folder (build.sh has made it) or from build/gpu-bin if they are there and
# run here, else builds them. Exits with 77 and "no GPU" without one.
[ $# -gt 0 ] || { echo "usage: run.sh FOLDER [PART...] [--quick] [--seconds S] [--only REGEX]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
# A driver may be installed where no device is.
python3 - <<'PYTHON' || { echo "no GPU"; exit 77; }
import ctypes, sys
count = ctypes.c_int(0)
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(1)
found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
sys.exit(not found or count.value == 0)
PYTHON
bin=$here
[ -x "$bin/ebb" ] || bin=$here/../../build/gpu-bin
"$bin/ebb" --version >/dev/null 2>&1 || "$here/build.sh" "$bin" || exit 1
exec python3 "$here/run.py" "$@" --bin "$bin"
