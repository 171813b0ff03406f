#!/bin/bash
# Runs a command on another kernel in QEMU, by default Debian 12's own (6.1, without UFFDIO_MOVE).
# EBB_REFUSE only emulates a system without some features. This is such a system.
#
# usage: tests/old_kernel.sh [-m MIB] [-t SECONDS] [-c CPUS] [-k REGEX] [-a ARGUMENTS] [-v] -- COMMAND...
#   -m  memory of the machine, 4096         -c  its processors, 2
#   -t  time limit in seconds, 900          -k  the kernel package: the last one whose name matches
#   -a  more arguments for the kernel       -v  use /dev/kvm if it works: nearly as fast as here
#
# The command runs as root in this folder, and sees all files of this machine. What it writes is
# lost, but /tmp, /var/tmp and $HOME are on a separate disk. Its output and its exit status are
# those of this script. 124 means that it did not end in time. The processors are emulated, and 10
# to 30 times slower than these, so times mean nothing. Needs root, Debian, and the network once.
# Missing packages are installed. The kernel is unpacked to ${EBB_KERNELS:-/var/tmp/ebb-kernels}. It
# is no part of the tests.
set -eu
usage() { sed -n '5,8p' "$0" >&2; exit 2; }
memory=4096 limit=900 cpus=2 arguments='' acceleration="tcg,thread=multi" pattern='^linux-image-6\.1\.0-[0-9]+-amd64-unsigned$'
while getopts m:t:c:k:a:v option; do
    case $option in
    m) memory=$OPTARG ;; t) limit=$OPTARG ;; c) cpus=$OPTARG ;; k) pattern=$OPTARG ;;
    a) arguments=$OPTARG ;; v) acceleration=kvm ;; *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage

need=
for pair in qemu-system-x86_64:qemu-system-x86 cpio:cpio mke2fs:e2fsprogs busybox:busybox-static; do
    [ -n "$(command -v "${pair%%:*}")" ] || need="$need ${pair#*:}"
done
[ -x /bin/busybox ] || need="$need busybox-static"
if [ -n "$need" ]; then
    apt-get -qq update
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $need >/dev/null
fi

# Makes the kernel's first root, which mounts this machine's files under a layer in memory.
package=$(apt-cache search --names-only "$pattern" | cut -d' ' -f1 | sort -V | tail -1)
[ -n "$package" ] || { echo "old_kernel: no package matches $pattern" >&2; exit 2; }
kernel=${EBB_KERNELS:-/var/tmp/ebb-kernels}/$package
if [ ! -e "$kernel/ready" ]; then
    rm -rf "$kernel" && mkdir -p "$kernel/early"/{bin,modules,proc,sys,dev,lower,upper,new}
    (cd "$kernel" && apt-get -qq download "$package" 2>/dev/null && dpkg-deb -x ./*.deb . && rm -f ./*.deb)
    cp "$(command -v busybox)" "$kernel/early/bin/busybox"
    for name in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk \
        netfs fscache 9pnet 9pnet_virtio 9p overlay crc16 crc32c_generic libcrc32c mbcache jbd2 ext4; do
        find "$kernel/lib/modules" -name "$name.ko" -exec cp {} "$kernel/early/modules/" \;
    done
    cat >"$kernel/early/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for again in 1 2 3 4 5 6; do # whatever depends on what
    for module in /modules/*.ko; do $b insmod $module 2>/dev/null; done
done
options=trans=virtio,version=9p2000.L,msize=1048576,cache=loose,ro
$b mount -t 9p -o $options host /lower
$b mount -t tmpfs upper /upper; $b mkdir /upper/files /upper/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work new /new
until [ -b /dev/vda ]; do $b sleep 0.1; done
for folder in proc sys dev run tmp var/tmp ebb-old-kernel; do $b mkdir -p /new/$folder; done
$b mount -t ext4 /dev/vda /new/ebb-old-kernel
$b mount -t tmpfs none /new/proc # not what this machine has there
for place in proc sys dev; do $b mount -o move /$place /new/$place; done
exec $b switch_root /new /bin/bash /ebb-old-kernel/start
INIT
    chmod +x "$kernel/early/init"
    (cd "$kernel/early" && find . | cpio -o -H newc 2>/dev/null | gzip -1 >../early.gz)
    touch "$kernel/ready"
fi

work=$(mktemp -d /var/tmp/old-kernel.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/disk"/{tmp,var-tmp,home} && chmod 1777 "$work/disk"/{tmp,var-tmp}
{
    printf 'cd %q\n' "$PWD"
    printf 'export PATH=%q\n' "$PATH"
    env -0 | while IFS= read -r -d '' pair; do
        case $pair in EBB_* | TF_* | OMP_*) printf 'export %q\n' "$pair" ;; esac
    done
    printf '%q ' "$@"
} >"$work/disk/command"
cat >"$work/disk/start" <<'START'
disk=/ebb-old-kernel
mkdir -p /dev/shm /dev/pts; ln -sfn /proc/self/fd /dev/fd
mount -t tmpfs shm /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs run /run
ip link set lo up 2>/dev/null
mount --bind $disk/tmp /tmp; mount --bind $disk/var-tmp /var/tmp
export HOME=$disk/home LANG=C.UTF-8
stty -F /dev/console -onlcr 2>/dev/null
echo "old_kernel: begin $(uname -r)"
bash $disk/command </dev/null
echo "old_kernel: exit $?"
sync
echo o >/proc/sysrq-trigger
sleep 20
START
mke2fs -q -t ext4 -d "$work/disk" "$work/image" 24G >/dev/null 2>&1

status=0
timeout "$limit" qemu-system-x86_64 -accel "$acceleration" -cpu max -m "$memory" -smp "$cpus" -display none \
    -serial stdio -monitor none -no-reboot -net none -kernel "$kernel"/boot/vmlinuz-* \
    -initrd "$kernel/early.gz" -append "console=ttyS0 quiet loglevel=1 panic=-1 $arguments" \
    -fsdev "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap" \
    -device virtio-9p-pci,fsdev=host,mount_tag=host \
    -drive "file=$work/image,format=raw,if=virtio,cache=unsafe" \
    </dev/null 2>"$work/errors" | tr -d '\r' | tee "$work/log" |
    sed -u -n '/^old_kernel: begin/,/^old_kernel: exit/p' || status=$?
code=$(sed -n 's/^old_kernel: exit \([0-9]*\)$/\1/p' "$work/log" | tail -1)
if [ -z "$code" ]; then
    cat "$work/errors" >&2
    tail -20 "$work/log" >&2
    echo "old_kernel: no end of the command within $limit s" >&2
    exit 124
fi
exit "$code"
