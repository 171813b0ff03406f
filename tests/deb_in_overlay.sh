#!/bin/bash
# Installs Debian packages into an overlay of this system, which vanishes, and runs the tests of
# debian/tests there. Needs root and mounts.
#
#     deb_in_overlay.sh FOLDER_OF_PACKAGES
set -eu
folder=$(realpath "$1")
tests=$(realpath "$(dirname "$0")/../debian/tests")
exec unshare --mount --fork /bin/bash -eu -c '
    root=$(mktemp -d)
    mount -t tmpfs ebb "$root"
    mkdir "$root/upper" "$root/work" "$root/all"
    mount -t overlay ebb -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/all"
    mount --bind /dev "$root/all/dev"
    mount -t proc proc "$root/all/proc"
    mount -t tmpfs tmp "$root/all/tmp"
    mkdir "$root/all/tmp/debs"
    cp "$1"/*.deb "$2"/installed "$root/all/tmp/debs"
    chroot "$root/all" /bin/sh -eu -c "
        cd /tmp/debs
        dpkg -i \$(ls *.deb | grep -v dbgsym) >/tmp/installed.log 2>&1 || {
            cat /tmp/installed.log; exit 1; }
        mkdir /var/tmp/ebb-installed
        PATH=/usr/bin:/bin:/usr/sbin:/sbin AUTOPKGTEST_TMP=/var/tmp/ebb-installed ./installed"
' bash "$folder" "$tests"
