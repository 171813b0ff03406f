"""Names of rows of the tables behind `ebb`, in their order. A new row needs its name here."""

OWN_POLICIES = ["ebb", "fifo", "none"]  # src/plan/plan.c
LAB_POLICIES = ["appobmem", "appobmem:strong", "autoswap", "autoswap:vote", "autoswap:doa",
                "autoswap:aoa", "autoswap:wdoa", "autoswap:swdoa", "autoswap:bo",
                "autoswap:strong", "capuchin", "vdnn:all", "vdnn:conv", "vdnn:dyn", "lru",
                "belady", "static", "layrub:inter", "layrub:intra",
                "layrub:hybrid"]  # src/lab/lab.c
ALLOCATORS = ["cnmem", "torch", "bfc", "glibc"]  # src/lab/peers/peer.c

# Options of the commands that plan, in the order of cli/offline.c.
SHARED = ["--machine", "--scale-time", "--store", "--smallest-block"]
OPTIONS = {"plan": ["--budget", "--zero-stall", "--policy", *SHARED, "--time-limit", "--output",
                    "--force", "--tune", "--json"],
           "simulate": ["--budget", *SHARED, "--tune", "--json"]}
LAB_OPTIONS = {"compare": ["--budgets", "--policies", "--pools", "--plan", "--machine",
                           "--scale-time", "--at-slowdown", "--store", "--smallest-block", "--seeds",
                           "--time-limit", "--csv", "--plot", "--force", "--tune", "--json"],
               "pack": ["--plan", "--capacity", "--pool", "--period", "--time-limit", "--output",
                        "--force", "--tune", "--json"]}
