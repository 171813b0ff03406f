#!/usr/bin/python3
"""A folder may use only the folders above it. The test checks every #include of our files.

The table below is the dependency rule of ARCHITECTURE.md, written once. First, violations are
planted in a small tree, and each must be found: a check that cannot fail is useless.
"""
import os
import re
import sys

from planting import is_same, planted

SOURCE = os.environ.get("EBB_SOURCE_DIR") or os.path.dirname(
    os.path.dirname(os.path.abspath(__file__)))

# Folders of planning code, in order. Each may use itself and all before it.
THINKS = ["base", "trace", "model", "machine", "plan", "check", "sim", "report"]

# folder -> its allowed includes besides itself: a folder ("base/") or one header.
ALLOWED = {f"src/{name}": [f"{above}/" for above in THINKS[:i]] for i, name in enumerate(THINKS)}
ALLOWED["src/base"] = ["ebb/status.h"]  # the codes are public, and so are phases
ALLOWED["src/trace"] += ["ebb/phase.h"]
ALLOWED.update({
    # The checker shares no code with the planners. Of plan/ it knows only the plan and the packing.
    "src/check": ["base/", "trace/", "model/", "machine/", "plan/plan.h", "plan/tiers.h",
                  "plan/pool/pool.h"],
    # Code for comparison. It uses all planning code, and only the tool uses it. Its own checker
    # shares no code with the code that it checks, either.
    "src/lab": [f"{name}/" for name in THINKS],
    "src/lab/check": ["base/", "trace/", "model/", "machine/", "plan/plan.h", "plan/pool/pool.h",
                      "lab/pool/model.h"],
    # The machine model knows lanes, but no models of programs.
    "src/machine": ["base/"],
    "src/device": ["base/"],
    "src/store": ["base/"],
    # Planners use the simulator to judge their choices. The simulator knows only the definition of
    # a plan. So neither depends on how the other works.
    "src/plan": ["base/", "trace/", "model/", "machine/", "sim/simulate.h"],
    # The request for a plan uses all planning code, and the script that the runtime reads.
    "src/plan/request": ["base/", "trace/", "model/", "machine/", "plan/", "check/", "sim/",
                         "runtime/script.h"],
    "src/sim": ["base/", "trace/", "model/", "machine/", "plan/plan.h", "plan/tiers.h"],
    # Devices and stores are used through their tables. extents.h is bookkeeping without a store.
    "src/runtime": ["base/", "trace/", "device/device.h", "store/store.h", "store/extents.h"],
    # The engine of a device. It shares the run's words with the runtime, but none of its parts.
    "src/cuda": ["base/", "trace/", "runtime/script.h", "runtime/template.h", "runtime/protocol.h",
                 "runtime/ledger.h"],
    # The parent of a running program uses all planning code, and the protocol shared with the
    # process.
    "src/parent": ["base/", "trace/", "model/", "machine/", "plan/", "check/", "sim/",
                   "runtime/script.h", "runtime/protocol.h", "runtime/ledger.h"],
    "shim": ["base/", "cuda/", "runtime/", "device/", "store/", "trace/ring.h", "trace/event.h"],
    "cli": [f"{name}/" for name in THINKS + ["lab", "parent", "cuda", "runtime", "device", "store"]]
           + ["ebb/"],
    # The public API, explicit use: a runtime, and what plans for it, in one process.
    "src/api": [f"{name}/" for name in THINKS + ["runtime", "device", "store"]] + ["ebb/"],
    "include/ebb": [],
    # The trainer is a user of the public API. For two tiers, of which that knows nothing, it names
    # its blocks and operations to the laboratory.
    "train": ["ebb/", "lab/tier/program.h"],
    "tests": None,  # any folder
    "bench": None,
})

# Code inside the program links libc and pthread only. xxhash is a header with inline code
# (XXH_INLINE_ALL), so nothing is linked.
INSIDE = ("src/device", "src/store", "src/runtime", "src/cuda", "shim")
INLINED = {"xxhash.h": re.compile(r"^\s*#\s*define\s+XXH_INLINE_ALL", re.M)}
FOREIGN = re.compile(r"^(zstd|zdict|xxhash|jansson|coin/|lapacke|cblas|dnnl|oneapi/)")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def folder_of(path):
    """The row of the table for a source file, or None."""
    parts = path.split("/")
    for depth in (3, 2, 1):
        name = "/".join(parts[:depth])
        if name in ALLOWED and len(parts) > depth:
            return name
    return None


def sources(root):
    for top in ("src", "include", "shim", "cli", "train", "tests", "bench"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def resolve(root, path, name):
    """The file of a quoted include: in the same folder, under src/, include/ or train/."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    trained = name if name.startswith("train/") else beside
    for candidate in (beside, f"src/{name}", f"include/{name}", trained):
        if os.path.exists(os.path.join(root, candidate)):
            return candidate
    return None


def violations(root):
    found = []
    for path in sources(root):
        owner = folder_of(path)
        if owner is None:
            found.append(f"{path}: stands in no folder of the table")
            continue
        allowed = ALLOWED[owner]
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        for bracket, name in INCLUDE.findall(text):
            if bracket == "<" and not name.startswith("ebb/"):
                inlined = name in INLINED and INLINED[name].search(text)
                if path.startswith(INSIDE) and FOREIGN.match(name) and not inlined:
                    found.append(f"{path}: <{name}>: only libc and pthread inside the program")
                continue
            target = resolve(root, path, name)
            if target is None:
                found.append(f"{path}: \"{name}\" leads nowhere")
                continue
            if allowed is None or folder_of(target) == owner:
                continue
            short = target.removeprefix("src/").removeprefix("include/")
            if not any(short == rule or rule.endswith("/") and short.startswith(rule)
                       for rule in allowed):
                found.append(f"{path}: \"{name}\": {owner} may not use {target}")
    return found


# The parts of the runtime, from the lowest to the highest. A part calls and includes only parts
# before it. `runtime` is src/runtime itself, except for `words`: the configuration of a runtime,
# and what it shares with the parent. Upwards, a part can only ask the questions of core/core.h. So
# no part knows the runtime as a whole.
PARTS = ["words", "core", "block", "address", "memory", "transfer", "reclaim", "replay", "runtime"]
WORDS = ("config", "ledger", "script", "template")
WHOLE = re.compile(r"\bstruct ebb_runtime\b|\"runtime/(internal|runtime)\.h\"")
DEFINITION = re.compile(r"^(?!static )[a-z][\w *]*?[ *](ebb__\w+)\([^;{}]*\)\n\{", re.M)
CALL = re.compile(r"\b(ebb__\w+)\(")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def part_of(path):
    """The position in PARTS of a file of the runtime."""
    inside = path.removeprefix("src/runtime/")
    if "/" in inside:
        return PARTS.index(inside.split("/")[0])
    return PARTS.index("words" if inside.split(".")[0] in WORDS else "runtime")


def calls_upwards(root):
    """Calls and includes in the runtime that lead to a higher part, or to the runtime as a
    whole."""
    texts, homes, found = {}, {}, []
    for path in sources(root):
        if path.startswith("src/runtime/"):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                texts[path] = COMMENT.sub("", file.read())
            for name in DEFINITION.findall(texts[path]):
                homes[name] = path
    for path, text in texts.items():
        if part_of(path) < PARTS.index("runtime") and WHOLE.search(text):
            found.append(f"{path}: a part knows those below it, not the whole runtime")
        for name in sorted(set(CALL.findall(text)) if path.endswith(".c") else ()):
            if name in homes and part_of(homes[name]) > part_of(path):
                found.append(f"{path}: calls {name}() of {homes[name]}, which stands above it")
        for _, name in INCLUDE.findall(text) if path.endswith(".h") else ():
            target = resolve(root, path, name)
            if target and target.startswith("src/runtime/") and part_of(target) > part_of(path):
                found.append(f"{path}: \"{name}\" stands above it")
    return found


# The files of other folders, from the lowest to the highest line. A file uses functions and data of
# files on lines above its own only. So no two files call each other in a circle, and a file can be
# read and tested after those it needs. Calls that libc and the program make (malloc, read, fork) do
# not count, so the shim's functions of these names may be called from anywhere.
ORDER = {
    "src/model": [
        "load",
        "access_clock derive detect lost operations recurrence serials shapes stages "
        "units",
        "instances landmark pairing parts reblock steps stream",
        "build slots windows",
        "lives",
        "coarse properties scale splice times unordered watch_iterations watch_phrases "
        "watch_recurring widest",
        "iteration watch_patterns",
        "analyse watch_gaps",
        "watch",
    ],
    "src/sim": [
        "tiers uses",
        "passive reactive",
        "setup steady",
        "simulate",
    ],
    "src/plan": [
        "place/huge_round place/resident pool/fit pool/order pool/search pool/sections "
        "bisect effort idle request/compile swap/measure swap/outcome "
        "swap/schedule swap/sweep tiers within",
        "file pool/canonical pool/portfolio pool/skyline swap/anneal swap/greedy swap/ranked "
        "swap/swap",
        "pool/improve pool/valley swap/choice swap/fifo swap/none",
        "pool/exact swap/refine swap/stall_free",
        "pool/ebb swap/stretched",
        "pool/pool swap/ebb",
        "place/place plan",
        "request/request",
        "request/budget_at request/forecast",
    ],
    "src/report": [
        "blocks escape lost_json timeline",
        "curve map",
        "gather",
        "data difference svg",
        "export text page",
    ],
    "src/api": [
        "mark statistics",
        "record",
        "forecast plan tensor",
        "context iteration",
    ],
    "src/cuda": [
        "busy driver feeder follow_ahead follow_find managed native queue scratch stream_events table timer "
        "vmm_pages",
        "streams",
        "clock_queue follow_scripts gate passages stalls vmm_maps",
        "chunks clock follow held slabs vmm_host",
        "pool",
        "moves",
        "arrivals",
        "outs",
        "drops",
        "mover",
        "check room",
        "engine",
        "plan sweep take waits",
        "alloc shared work",
    ],
    "src/device": [
        "ballast fake host_shared kernel room runs uffd",
        "host_move host_protect host_remap trial",
        "host support",
    ],
    "src/store": [
        "descriptor extents faulty zvc",
        "compressed mapped",
        "file memory",
        "striped",
    ],
    "src/parent": [
        "copies measured names profile states status stuck tell",
        "alarm budget lanes observe profile_read trial",
        "memories rest",
        "cache plans",
        "batch gaps replan",
        "recall",
        "leave",
        "gone learn",
        "doors show",
        "parent",
        "finish",
    ],
    "shim/join": [
        "messages settings thread",
        "hello",
    ],
    "shim/malloc": [
        "callers ending fault_stacks lost next process",
        "masks threads",
        "events keeper sampler",
        "guard service",
        "mappings marks pins signals stacks",
        "descriptors lent limits locks masked names",
        "calls retire",
        "join",
        "forked",
        "atfork",
        "rawfork start",
        "hooks",
    ],
    "shim/cuda": [
        "find host",
        "real",
        "attach",
        "engines",
        "unheard",
        "captures state",
        "ways",
        "job",
        "lanes",
        "detours",
        "unions",
        "kept owned",
        "params payload",
        "addresses contexts copies exclusions hooks launches look_up marks memory modules "
        "placement second_door sets translate words",
        "batches graphs",
        "streams",
    ],
    "cli": [
        "environment free_memory interrupt lab output place progress store_dir",
        "command planning",
        "tune",
        "choices doctor_report launch load options",
        "gpu",
        "doctor_cuda doctor_memory doctor_programs import info inputs offline record summary top_look top_text",
        "compare_front compare_list compare_pools compare_tiers_plot compare_tiers_show",
        "compare_csv compare_files compare_json compare_plot compare_table",
        "budget_at compare_rows compare_tiers",
        "doctor top_export top_view",
        "advise compare pack plan report run simulate top",
        "describe",
        "main no_lab",
    ],
}

# They replace other files in some builds. Their functions are looked for in those files.
STAND_INS = ("cli/no_lab.c",)
DEFINED = re.compile(r"^(?!static |extern )[a-z_][\w *]*?[ *](ebb_\w+)"
                     r"(?:\([^;{}]*\)\n\{|(?:\[\w*\])? = )", re.M)
NAME = re.compile(r"\bebb_\w+\b")


def calls_out_of_order(root, order):
    """Calls in the folders of `order` that do not lead down, and files without a place in it."""
    found = []
    for folder, lines in order.items():
        place = {f"{folder}/{name}.c": i for i, line in enumerate(lines) for name in line.split()}
        texts, homes = {}, {}
        for path in sources(root):
            if path.startswith(f"{folder}/") and path.endswith(".c"):
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    texts[path] = COMMENT.sub("", file.read())
                if path not in STAND_INS:
                    homes.update({name: path for name in DEFINED.findall(texts[path])})
        for path in sorted(set(texts) - set(place)):
            found.append(f"{path}: has no line in ORDER of tests/test_layers.py")
        for path in sorted(set(place) - set(texts)):
            found.append(f"{path}: is in ORDER of tests/test_layers.py and nowhere else")
        for path, text in sorted(texts.items()):
            for name in sorted(set(NAME.findall(text)) & set(homes)):
                home = homes[name]
                if home != path and path in place and place.get(home, -1) >= place[path]:
                    found.append(f"{path}: uses {name} of {home}, which does not stand below it")
    return found


PLANTED_ORDER = {"src/parent": ["tell", "budget plans", "learn gone"]}

PLANTED = {  # file: (text, whether it is a violation)
    "src/base/size.h": ("#include <stdint.h>\n", False),
    "src/base/bad.c": ('#include "trace/event.h"\n', True),
    "src/trace/event.h": ('#include "base/size.h"\n', False),
    "src/model/model.h": ('#include "trace/event.h"\n', False),
    "src/plan/plan.h": ('#include "model/model.h"\n', False),
    "src/plan/swap/lanes.h": ('#include "plan/plan.h"\n', False),
    "src/plan/request/request.h": ('#include "runtime/script.h"\n#include "plan/plan.h"\n', False),
    "src/plan/request/good.c": ('#include "plan/swap/lanes.h"\n#include "sim/simulate.h"\n', False),
    "src/plan/request/bad.c": ('#include "runtime/internal.h"\n', True),
    "src/plan/circle.c": ('#include "plan/request/request.h"\n', True),
    "src/plan/swap/bad.c": ('#include "runtime/script.h"\n', True),
    "src/check/good.c": ('#include "plan/plan.h"\n', False),
    "src/check/bad.c": ('#include "plan/swap/lanes.h"\n', True),
    "src/plan/pool/pool.h": ("", False),
    "src/plan/pool/sections.h": ("", False),
    "src/check/packing.c": ('#include "plan/pool/pool.h"\n', False),
    "src/check/sections.c": ('#include "plan/pool/sections.h"\n', True),
    "src/sim/simulate.h": ('#include "plan/plan.h"\n', False),
    "src/sim/bad.c": ('#include "plan/swap/lanes.h"\n', True),
    "src/plan/swap/good.c": ('#include "sim/simulate.h"\n', False),
    "src/sim/reactive.h": ("", False),
    "src/plan/swap/bad.c": ('#include "sim/reactive.h"\n', True),
    "src/lab/lab.h": ('#include "plan/plan.h"\n', False),
    "src/lab/pool/model.h": ('#include "plan/pool/pool.h"\n', False),
    "src/lab/swap/good.c": ('#include "plan/swap/lanes.h"\n#include "sim/reactive.h"\n', False),
    "src/lab/swap/bad.c": ('#include "parent/parent.h"\n', True),
    "src/lab/pool/bad.c": ('#include "runtime/script.h"\n', True),
    "src/lab/check/good.c": ('#include "lab/pool/model.h"\n', False),
    "src/lab/check/bad.c": ('#include "plan/pool/sections.h"\n', True),
    "src/lab/check/worse.c": ('#include "lab/lab.h"\n', True),
    "src/plan/lab.c": ('#include "lab/lab.h"\n', True),
    "src/check/lab.c": ('#include "lab/pool/model.h"\n', True),
    "src/sim/lab.c": ('#include "lab/lab.h"\n', True),
    "src/parent/parent.h": ('#include "plan/plan.h"\n', False),
    "src/parent/lab.c": ('#include "lab/lab.h"\n', True),
    "src/runtime/lab.c": ('#include "lab/lab.h"\n', True),
    "shim/malloc/lab.c": ('#include "lab/lab.h"\n', True),
    "cli/lab.c": ('#include "lab/lab.h"\n', False),
    "src/device/device.h": ("#include <stddef.h>\n", False),
    "src/device/host.h": ('#include "device.h"\n', False),
    "src/runtime/good.c": ('#include "device/device.h"\n#include <pthread.h>\n', False),
    "src/runtime/bad.c": ('#  include "device/host.h"\n', True),
    "src/runtime/worse.c": ("#include <jansson.h>\n", True),
    "src/runtime/inlined.c": ("#define XXH_INLINE_ALL\n#include <xxhash.h>\n", False),
    "src/runtime/linked.c": ("#include <xxhash.h>\n", True),
    "src/runtime/model.c": ('#include "model/model.h"\n', True),
    "shim/malloc/good.c": ('#include "device/host.h"\n#include "trace/event.h"\n', False),
    "shim/malloc/bad.c": ('#include "plan/plan.h"\n', True),
    "src/runtime/script.h": ("", False),
    "src/runtime/internal.h": ("", False),
    "src/runtime/memory/pages.c": ("void ebb__pages_give(int bytes)\n{\n    ebb__core_mark(bytes);\n}\n", False),
    "src/runtime/core/core.c": ("void ebb__core_mark(int value)\n{\n    (void)value;\n}\n", False),
    "src/runtime/core/up.c": ("void ebb__core_up(void)\n{\n    ebb__pages_give(1);\n}\n", True),
    "src/runtime/core/said.c": ("/* ebb__pages_give(1) is above. */\n", False),
    "src/runtime/config.h": ("", False),
    "src/runtime/runtime.h": ('#include "runtime/config.h"\n', False),
    "src/runtime/core/core.h": ('#include "runtime/config.h"\n', False),
    "src/runtime/core/whole.h": ("void ebb__core_all(struct ebb_runtime *runtime);\n", True),
    "src/runtime/core/config.c": ("static struct ebb_runtime_config usual;\n", False),
    "src/runtime/memory/whole.c": ('#include "runtime/internal.h"\n', True),
    "src/runtime/whole.h": ("void ebb__runtime_all(struct ebb_runtime *runtime);\n", False),
    "src/runtime/replay/replay.h": ('#include "runtime/script.h"\n', False),
    "src/runtime/block/block.h": ('#include "runtime/replay/replay.h"\n', True),
    "src/parent/good.c": ('#include "runtime/script.h"\n#include "plan/plan.h"\n', False),
    "src/parent/bad.c": ('#include "runtime/internal.h"\n', True),
    "src/parent/tell.c": ("const char *ebb__tell_name = 0;\nvoid ebb__tell(int a)\n{\n}\n",
                          False),
    "src/parent/budget.c": ("int ebb__budget(void)\n{\n    ebb__tell(1);\n}\n", False),
    "src/parent/plans.c": ("int ebb__plans(void)\n{\n    return ebb__budget();\n}\n", True),
    "src/parent/learn.c": ("int ebb__learn(void)\n{\n    /* ebb__other() */\n    ebb__plans();\n}\n",
                           False),
    "src/parent/unlisted.c": ("int ebb__unlisted(void)\n{\n    ebb__plans();\n}\n", True),
    "cli/good.c": ('#include "plan/swap/lanes.h"\n#include <zstd.h>\n', False),
    "include/ebb/ebb.h": ("#include <stddef.h>\n", False),
    "train/good.c": ("#include <ebb/ebb.h>\n", False),
    "train/bad.c": ('#include "base/size.h"\n', True),
    "src/lab/tier/program.h": ("", False),
    "src/lab/tier/carry.h": ("", False),
    "train/tiers.c": ('#include "lab/tier/program.h"\n', False),
    "train/worse.c": ('#include "lab/tier/carry.h"\n', True),
    "src/new/thing.c": ("", True),
    "bench/lost.c": ('#include "base/gone.h"\n', True),
}


def self_test():
    with planted({path: text for path, (text, _) in PLANTED.items()}) as root:
        accused = {line.split(":")[0] for line in violations(root) + calls_upwards(root)
                   + calls_out_of_order(root, PLANTED_ORDER)}
    guilty = {path for path, (_, bad) in PLANTED.items() if bad}
    guilty |= {"src/parent/gone.c",  # listed, missing
               "src/parent/good.c", "src/parent/bad.c", "src/parent/lab.c"}  # present, not listed
    return is_same(accused, guilty)


def main():
    if not self_test():
        return 1
    found = violations(SOURCE) + calls_upwards(SOURCE) + calls_out_of_order(SOURCE, ORDER)
    for line in found:
        print(line)
    count = sum(1 for _ in sources(SOURCE))
    print(f"{count} files, {len(found)} violations")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
