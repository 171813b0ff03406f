#!/bin/sh
# Trainings on a GPU, with and without Ebb: run.sh FOLDER [--quick] [--seconds S]
#
# Takes the programs from build/gpu-bin if they are there and run here, else builds them. See
# bench/gpu/run.py. Exits with 77 and "no GPU" without one.
folder=${1:?usage: run.sh FOLDER [--quick] [--seconds S]}
shift
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../build/gpu-bin
# A driver may be installed where no device is.
python3 - <<'END' || { echo "no GPU"; exit 77; }
import ctypes, sys
count = ctypes.c_int(0)
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(1)
found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
sys.exit(not found or count.value == 0)
END
"$bin/ebb" --version >/dev/null 2>&1 || "$here/build.sh" "$bin" || exit 1
mkdir -p "$folder" || exit 2
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader 2>&1
exec python3 "$here/run.py" "$folder" --bin "$bin" "$@"
