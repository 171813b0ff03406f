#!/bin/bash
# Follows docs/tutorial.md to the letter in a fresh Debian 12. That has the packages which the
# tutorial installs, those of `make deb`, and nothing else. Prints each command and what it says.
# Takes ten minutes and 1.5 GB.
#
#     tutorial_in_root.sh FOLDER_OF_PACKAGES [ROOT]
#
# ROOT is made if it does not exist, and kept. Without it, the root is temporary. Needs root and a
# Debian mirror (EBB_MIRROR). Exits with 77, and says why, if it cannot run here.
set -euo pipefail
skip()
{
    echo "skipped: needs $1"
    exit 77
}
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$(id -u)" = 0 ] || skip "root"
command -v mmdebstrap >/dev/null || skip "mmdebstrap"
unshare --mount --pid --fork true 2>/dev/null || skip "mounts"
packages=$(realpath "$1")
ls "$packages"/ebb_*.deb "$packages"/python3-ebb_*.deb >/dev/null || skip "packages of make deb"
tutorial=$(realpath "$(dirname "$0")/../docs/tutorial.md")
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=${2:-$work/root}

if [ ! -e "$root/usr/bin/ebb" ]; then
    # shellcheck disable=SC2016 # a backquote of the document
    include=$(sed -n 's/.*`apt install \([^`]*\)`.*/\1/p' "$tutorial" | tr ' ' ,)
    for package in "$packages"/ebb_*.deb "$packages"/python3-ebb_*.deb; do
        include=$include,$package
    done
    mmdebstrap --quiet --variant=minbase --include="$include" \
        --hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount \
        bookworm "$root" "${EBB_MIRROR:-http://deb.debian.org/debian}" 2>"$work/made.log" || {
        tail -n 5 "$work/made.log"
        skip "a Debian mirror"
    }
fi

# The first block of Python is what the reader saves as train.py. Shell blocks are what is typed.
rm -rf --one-file-system "$root/home/reader"
mkdir "$root/home/reader"
awk -v folder="$root/home/reader" '
    /^```$/ { out = "" }
    out != "" { print > out }
    /^```python$/ && !saved { out = folder "/train.py"; saved = 1 }
    /^```sh$/ { out = folder "/commands.sh" }' "$tutorial"
grep -c . "$root/home/reader/commands.sh" >/dev/null || { echo "the tutorial has no commands"; exit 1; }

# shellcheck disable=SC2016 # the inner shell expands
exec unshare --mount --pid --fork /bin/bash -euo pipefail -c '
    root=$1
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs tmp "$root/tmp"
    exec chroot "$root" /usr/bin/env -i HOME=/home/reader PATH=/usr/bin:/bin:/usr/sbin:/sbin \
        LANG=C.UTF-8 TERM=dumb /bin/bash -c "cd && exec /bin/bash -ev commands.sh 2>&1"' bash "$root"
