#!/usr/bin/python3
"""Makes random packing instances with a known optimum: guillotine cuts of a rectangle, shuffled.

    bench/planted.py --buffers 200 --seed 7 > planted.csv

A rectangle of time by height is cut in two again and again, along either axis. The pieces are the
buffers. They fill the rectangle without a hole, so its height is the optimum.
"""
import argparse
import random
import sys


def pieces(rng, buffers, width, height, even):
    """Cuts the largest of `even` random pieces. With 1, sizes vary. With many, they are similar."""
    parts = [(0, width, 0, height)]
    while len(parts) < buffers:
        sample = [rng.randrange(len(parts)) for _ in range(even)]
        index = max(sample, key=lambda i: (parts[i][1] - parts[i][0]) * (parts[i][3] - parts[i][2]))
        left, right, low, high = parts[index]
        across_time = rng.random() < 0.5
        if across_time and right - left > 1:
            cut = rng.randrange(left + 1, right)
            parts[index] = (left, cut, low, high)
            parts.append((cut, right, low, high))
        elif not across_time and high - low > 1:
            cut = rng.randrange(low + 1, high)
            parts[index] = (left, right, low, cut)
            parts.append((left, right, cut, high))
    rng.shuffle(parts)
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffers", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=int, default=1000, help="width of the rectangle, in time")
    parser.add_argument("--height", type=int, default=1 << 20, help="the optimum, in bytes")
    parser.add_argument("--even", type=int, default=3, help="similarity of the pieces, from 1")
    parser.add_argument("--solution", action="store_true", help="also write the offsets of the optimum")
    args = parser.parse_args()
    if not 1 <= args.buffers <= args.width * args.height // 4:
        parser.error("so many buffers do not come out of that rectangle")
    if args.even < 1:
        parser.error("--even is at least 1")
    print("id,lower,upper,size" + (",offset" if args.solution else ""))
    for index, (left, right, low, high) in enumerate(
            pieces(random.Random(args.seed), args.buffers, args.width, args.height, args.even)):
        print(f"{index},{left},{right},{high - low}" + (f",{low}" if args.solution else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
