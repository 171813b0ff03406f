#!/bin/sh
# Builds what bench/gpu/run.sh runs: build.sh FOLDER
#
# In FOLDER are then `ebb`, its libraries, the measurements, the programs of the tests, and the
# scripts. The folder can be copied to another machine with glibc 2.34 or later and python3:
# FOLDER/run.sh runs there. Without src/lab and the tests, three libraries are needed beside libc;
# they are copied if the linker finds them here.
set -e
folder=${1:?usage: build.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$source/build/gpu
compiler=$(command -v gcc || command -v cc || command -v clang)
# shellcheck disable=SC2016 # the loader reads $ORIGIN
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DEBB_LAB=OFF \
    -DEBB_TESTS=OFF -DEBB_TRAIN=OFF -DCMAKE_BUILD_RPATH='$ORIGIN' >/dev/null
cmake --build "$build" --target ebb ebb_cuda ebb_malloc >/dev/null
mkdir -p "$folder/programs"
folder=$(cd "$folder" && pwd)
cp "$build/bin/ebb" "$build/bin/libebb_cuda.so" "$build/bin/libebb_malloc.so" "$folder"
strip --strip-debug "$folder/ebb" "$folder"/libebb_*.so
ldd "$build/bin/ebb" | awk '/libzstd|libxxhash|libjansson/ && $3 ~ /^\// {print $3}' |
    while read -r library; do cp -L "$library" "$folder"; done

compile()
{
    "$compiler" -std=gnu11 -O2 -ffp-contract=off -I "$source/src" "$@"
}

compile "$here"/micro*.c -o "$folder/micro" -ldl -lpthread -lm
compile "$here/launches.c" -o "$folder/launches" -ldl -lpthread
for library in managed_plain managed_pool; do
    compile -shared -fPIC "$here/$library.c" -o "$folder/$library.so" -ldl -lpthread
done
# They need libcuda.so.1, which is the name of this library, too.
for program in "$source"/tests/fakecuda/programs/*.c; do
    compile "$program" "$folder/libebb_cuda.so" \
        -o "$folder/programs/$(basename "$program" .c)" -ldl -lpthread -lm
done
cp "$source/tests/fakecuda/programs/kernels.ptx" "$folder/programs"
cp "$here"/*.py "$here/run.sh" "$here/kernels.ptx" "$folder"
