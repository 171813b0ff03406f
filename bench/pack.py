#!/usr/bin/python3
"""The table of packings: height and time of each, and the load, which is a lower bound.

    bench/pack.py --data ../shared/data -o pack.json
    bench/pack.py --minimalloc PATH/minimalloc       with MiniMalloc itself, in turns on one core
    bench/pack.py --like 20                          20 random instances like each of A to F

The instances are MiniMalloc's A to F at their capacity, and the larger ones of idealloc. SINGA's
traces are packed by SmartPool as published and by the default. Random instances have a planted
optimum (planted.py). Times are those of the search alone (`solve_ns`), and for MiniMalloc those of
the process. Each is the median of --runs. With --like, only instances that planted.py makes with
the structure of A to F are packed, at the same capacity. A line sums up each letter.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CAPACITY = 1048576  # part of the files' names
PLANTED = [(buffers, seed, even) for buffers in (120, 200, 300) for seed in (1, 2, 3)
           for even in (1, 3)]


def ebb_pack(args, path, *options):
    done = subprocess.run([args.ebb, "pack", path, "--json", *options], capture_output=True,
                          text=True, check=False)
    if done.returncode not in (0, 3, 4):
        sys.exit(f"pack.py: {path}: {done.stderr}")
    return json.loads(done.stdout)


def minimalloc_ns(args, path, out):
    begin = time.monotonic_ns()
    subprocess.run([args.minimalloc, f"--capacity={CAPACITY}", f"--input={path}",
                    f"--output={out}"], capture_output=True, check=True)
    return time.monotonic_ns() - begin


def row_of(name, found, **more):
    return {"instance": name, **{key: found[key] for key in (
        "pool", "buffers", "load_bytes", "lower_bound_bytes", "height_bytes", "optimal", "feasible",
        "solve_ns")}, "ratio": found["height_bytes"] / found["load_bytes"], **more}


def rows_of_minimalloc(args, folder):
    for letter in "ABCDEF":
        path = os.path.join(args.data, "minimalloc", f"{letter}.{CAPACITY}.csv")
        times, peers = [], []
        for _ in range(args.runs):
            found = ebb_pack(args, path, "--capacity", str(CAPACITY), "--time-limit",
                             str(args.seconds))
            times.append(found["solve_ns"])
            if args.minimalloc:
                peers.append(minimalloc_ns(args, path, os.path.join(folder, "out.csv")))
        found["solve_ns"] = statistics.median(times)
        more = {"minimalloc_ns": statistics.median(peers)} if peers else {}
        yield row_of(f"minimalloc/{letter}", found, **more)


def write_planted(path, *options):
    with open(path, "w", encoding="utf-8") as file:
        subprocess.run([os.path.join(HERE, "planted.py"), *options], stdout=file, check=True)


def rows_like(args):
    """Instances with the structure of MiniMalloc's, each at its capacity."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "like.csv"), os.path.join(folder, "out.csv")
        for letter in "ABCDEF":
            for seed in range(1 + args.seed, 1 + args.seed + args.like):
                write_planted(path, "--like", letter, "--seed", str(seed))
                found = ebb_pack(args, path, "--capacity", str(CAPACITY), "--time-limit",
                                 str(args.seconds))
                more = {"minimalloc_ns": minimalloc_ns(args, path, out)} if args.minimalloc else {}
                yield row_of(f"like {letter} seed {seed}", found, **more)


def show_like(rows_done):
    """The instances that reached the capacity, and the times, by letter."""
    for letter in "ABCDEF":
        some = [row for row in rows_done if row["instance"].startswith(f"like {letter} ")]
        times = [row["solve_ns"] / 1e9 for row in some]
        print(f"like {letter}: {sum(row['feasible'] for row in some)} of {len(some)} at capacity; "
              f"{statistics.median(times):.3f} s median, {max(times):.3f} s most")


def rows(args):
    if args.like:
        yield from rows_like(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        if args.data:
            yield from rows_of_minimalloc(args, folder)
            for name in ("resnet50", "G_1", "pangu_2.6B"):
                path = os.path.join(args.data, "dsa", f"{name}.csv")
                yield row_of(f"dsa/{name}", ebb_pack(args, path, "--time-limit", "10"))
            for name in ("memInfo_alex_20itr_100size.text", "memInfo_vgg_20itr_100size.text",
                         "vec_run_5_alex.csv", "vec_block_fresh_vgg.csv"):
                for pool in ("smartpool", "ebb"):
                    path = os.path.join(args.data, "singa", name)
                    yield row_of(f"singa/{name}", ebb_pack(args, path, "--pool", pool))
        for buffers, seed, even in PLANTED:
            path = os.path.join(folder, "planted.csv")
            write_planted(path, "--buffers", str(buffers), "--seed", str(seed + args.seed),
                          "--even", str(even))
            yield row_of(f"planted/{buffers} seed {seed + args.seed} even {even}",
                         ebb_pack(args, path, "--time-limit", "5"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ebb", default=os.path.join(HERE, "..", "build/release/bin/ebb"))
    parser.add_argument("--data", help="a folder with minimalloc/, dsa/ and singa/")
    parser.add_argument("--minimalloc", help="path of MiniMalloc's program")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="added to those of planted instances")
    parser.add_argument("--like", type=int, default=0, metavar="N",
                        help="pack N random instances like each of MiniMalloc's instead")
    parser.add_argument("--seconds", type=float, default=60,
                        help="most for an instance that has a capacity")
    parser.add_argument("-o", "--out", help="write the rows as JSON")
    args = parser.parse_args()
    done = []
    if not args.minimalloc:
        print("MiniMalloc beside ours: skipped, no --minimalloc PATH")
    print(f"{'instance':<40} {'pool':<10} {'buffers':>7} {'height / load':>13} {'proved':>7} "
          f"{'time s':>8} {'MiniMalloc s':>12}")
    for row in rows(args):
        done.append(row)
        peer = f"{row['minimalloc_ns'] / 1e9:12.3f}" if "minimalloc_ns" in row else ""
        print(f"{row['instance']:<40} {row['pool']:<10} {row['buffers']:>7} {row['ratio']:13.6f} "
              f"{'yes' if row['optimal'] else 'no':>7} {row['solve_ns'] / 1e9:8.3f} {peer}",
              flush=True)
    if args.like:
        show_like(done)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"schema": "ebb.bench-pack/1", "rows": done}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
