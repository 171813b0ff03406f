#!/usr/bin/python3
"""Makes random packing instances with a known packing: cuts of a rectangle, shuffled.

    bench/planted.py --buffers 200 --seed 7 > planted.csv
    bench/planted.py --like C --seed 7 > like_c.csv

A rectangle of time by height is cut in two again and again, along either axis. The pieces are the
buffers. They fill the rectangle without a hole, so its height is the optimum.

With --like, the instance has the structure of one of MiniMalloc's. It has as many buffers, as many
times, the unit 1024, and the same share of the rectangle is filled. A to E are cut as above, and
then some pieces go or shrink, which leaves holes. F is another kind. Short buffers of similar size
are put one by one on the lowest free place. The capacity of all is 1048576, which suffices.
"""
import argparse
import random
import sys

UNIT, SIDE = 1024, 1024  # of time and of memory
# Buffers, distinct times and the share that is filled, as measured on the published files.
LIKE = {"A": (154, 72, 0.950), "B": (170, 83, 0.977), "C": (203, 100, 0.980), "D": (213, 103, 0.943),
        "E": (215, 114, 0.890), "F": (296, 175, 0.658)}
SHORT, SMALL = (17, 56), (32, 110)  # of F: lifetimes and sizes, in units


def pieces(rng, buffers, width, height, even, times=None):
    """Cuts the largest of `even` random pieces. With 1, sizes vary. With many, they are similar.
    If `times` are given, only they cut time."""
    parts = [(0, width, 0, height)]
    while len(parts) < buffers:
        sample = [rng.randrange(len(parts)) for _ in range(even)]
        index = max(sample, key=lambda i: (parts[i][1] - parts[i][0]) * (parts[i][3] - parts[i][2]))
        left, right, low, high = parts[index]
        across_time = rng.random() < 0.5
        if across_time:
            cuts = [t for t in times if left < t < right] if times else range(left + 1, right)
            if cuts:
                cut = rng.choice(cuts)
                parts[index] = (left, cut, low, high)
                parts.append((cut, right, low, high))
        elif high - low > 1:
            cut = rng.randrange(low + 1, high)
            parts[index] = (left, right, low, cut)
            parts.append((left, right, cut, high))
    rng.shuffle(parts)
    return parts


def area(parts):
    return sum((right - left) * (high - low) for left, right, low, high in parts)


def with_holes(rng, parts, filled):
    """Takes away until only the share `filled` is left: pieces end early, or are lower."""
    wanted = filled * area(parts)
    while area(parts) > wanted:
        index = rng.randrange(len(parts))
        left, right, low, high = parts[index]
        if rng.random() < 0.5 and right - left > 1:
            parts[index] = (left, rng.randrange(left + 1, right), low, high)
        elif high - low > 1:
            parts[index] = (left, right, low, rng.randrange(low + 1, high))
        if area(parts) < wanted - 0.01 * SIDE * SIDE:  # a large piece goes on at its full size
            parts[index] = (left, right, low, high)
    return parts


def stacked(rng, buffers, times, filled):
    """Short buffers, each on the lowest free place. One that does not fit is drawn anew."""
    clock = sorted(rng.sample(range(1, SIDE), times - 2)) + [SIDE]
    parts = []
    for _ in range(1000 * buffers):
        if len(parts) == buffers:
            break
        left = rng.choice(clock)
        ends = [t for t in clock if SHORT[0] <= t - left <= SHORT[1]]
        if not ends:
            continue
        right, size = rng.choice(ends), rng.randint(*SMALL)
        low = 0
        for other in sorted((p for p in parts if p[0] < right and left < p[1]),
                            key=lambda p: p[2]):
            if other[2] - low >= size:
                break
            low = max(low, other[3])
        if low + size <= SIDE:
            parts.append((left, right, low, low + size))
    if area(parts) < 0.8 * filled * SIDE * SIDE:
        sys.exit("planted.py: this seed leaves too much free")
    return parts


def like(rng, letter):
    buffers, times, filled = LIKE[letter]
    if letter == "F":
        parts = stacked(rng, buffers, times, filled)
    else:
        cuts = sorted(rng.sample(range(1, SIDE), times - 2))
        parts = with_holes(rng, pieces(rng, buffers, SIDE, SIDE, 1 + rng.randrange(3), cuts), filled)
    return [tuple(UNIT * edge for edge in part) for part in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffers", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=int, default=1000, help="width of the rectangle, in time")
    parser.add_argument("--height", type=int, default=1 << 20, help="the optimum, in bytes")
    parser.add_argument("--even", type=int, default=3, help="similarity of the pieces, from 1")
    parser.add_argument("--like", choices=sorted(LIKE), help="the structure of one of MiniMalloc's")
    parser.add_argument("--solution", action="store_true", help="also write the offsets")
    args = parser.parse_args()
    if not 1 <= args.buffers <= args.width * args.height // 4:
        parser.error("so many buffers do not come out of that rectangle")
    if args.even < 1:
        parser.error("--even is at least 1")
    rng = random.Random(args.seed)
    parts = like(rng, args.like) if args.like else \
        pieces(rng, args.buffers, args.width, args.height, args.even)
    print("id,lower,upper,size" + (",offset" if args.solution else ""))
    for index, (left, right, low, high) in enumerate(parts):
        print(f"{index},{left},{right},{high - low}" + (f",{low}" if args.solution else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
