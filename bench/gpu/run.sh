#!/bin/sh
# Trainings on a GPU, with and without Ebb: run.sh FOLDER [--quick] [--seconds S]
#
# Takes the programs from build/gpu-bin if they are there and run here, else builds them. See
# bench/gpu/run.py. Exits with 77 and "no GPU" without one.
folder=${1:?usage: run.sh FOLDER [--quick] [--seconds S]}
shift
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../build/gpu-bin
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1' && [ ! -e /dev/nvidia0 ]; then
    echo "no GPU"
    exit 77
fi
"$bin/ebb" --version >/dev/null 2>&1 || "$here/build.sh" "$bin" || exit 1
mkdir -p "$folder" || exit 2
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used --format=csv,noheader 2>&1
exec python3 "$here/run.py" "$folder" --bin "$bin" "$@"
