#!/bin/sh
# Builds what bench/gpu/run.sh runs: build.sh FOLDER
#
# In FOLDER are then `ebb`, its libraries, and the measurements in C. The folder can be copied to
# another machine with glibc 2.34 or later. Without src/lab and the tests, three libraries are
# needed beside libc; they are copied if the linker finds them here.
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
mkdir -p "$folder"
cp "$build/bin/ebb" "$build/bin/libebb_cuda.so" "$build/bin/libebb_malloc.so" "$folder"
strip --strip-debug "$folder/ebb" "$folder"/libebb_*.so
ldd "$build/bin/ebb" | awk '/libzstd|libxxhash|libjansson/ && $3 ~ /^\// {print $3}' |
    while read -r library; do cp -L "$library" "$folder"; done
"$compiler" -std=gnu11 -O2 -I "$source/src" "$here/launches.c" -o "$folder/launches" -ldl -lpthread
"$compiler" -std=gnu11 -O2 -shared -fPIC -I "$source/src" "$here/managed_plain.c" \
    -o "$folder/managed_plain.so" -ldl -lpthread
