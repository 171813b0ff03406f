"""Runs kernels in PTX, a thread after the other: the few instructions that this project's kernels
have. Device memory is a dictionary of bytearrays by address. Threads do not run at one time, so no
kernel may wait for another thread.
"""
import re
import struct

BITS = 64
ENTRY = re.compile(r"\.visible \.entry (\w+)\(([^)]*)\)\s*\{(.*?)\n\}", re.S)
GLOBAL = re.compile(r"\.visible \.global \.align \d+ \.u64 (\w+);")
SIZES = {"u64": 8, "b64": 8, "u32": 4, "b32": 4, "f32": 4}


def rounded(value):
    """To the nearest float: exact for one operation on two floats, which a double holds."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Module:
    """The kernels of a text. `globals`: the addresses of its variables, from `base` on."""

    def __init__(self, text, base=1 << 40):
        text = re.sub(r"//[^\n]*", "", text)
        self.kernels = {}
        for name, parameters, body in ENTRY.findall(text):
            self.kernels[name] = (re.findall(r"\.param \.(\w+) (\w+)", parameters), parse(body))
        self.globals = {name: base + 4096 * i for i, name in enumerate(GLOBAL.findall(text))}
        self.memory = {address: bytearray(8) for address in self.globals.values()}

    def put(self, address, data):
        self.memory[address] = bytearray(data)

    def place(self, address, size):
        """Where these bytes are. An access beyond a block is an error."""
        for base, data in self.memory.items():
            if base <= address and address + size <= base + len(data):
                return data, address - base
        raise IndexError(f"{size} bytes at {address:#x}")

    def launch(self, name, *values, blocks=3, threads=2):
        parameters, body = self.kernels[name]
        assert len(parameters) == len(values), name
        for block in range(blocks):
            for thread in range(threads):
                given = {key: value for (_, key), value in zip(parameters, values)}
                special = {"%ctaid.x": block, "%ntid.x": threads, "%tid.x": thread,
                           "%nctaid.x": blocks}
                Thread(self, given, special).run(*body)


def parse(body):
    """Instructions (predicate, name, operands), and the places of labels."""
    code, labels = [], {}
    for line in (line.strip() for line in body.split("\n")):
        if not line or line.startswith(".reg"):
            continue
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
            continue
        match = re.fullmatch(r"(?:@(%\w+) )?([\w.]+)(?: (.*))?;", line)
        code.append((match[1], match[2], re.findall(r"\[[^\]]*\]|[^\s,]+", match[3] or "")))
    return code, labels


class Thread:
    def __init__(self, module, parameters, special):
        self.module, self.parameters, self.special = module, parameters, special
        self.registers = {}

    def value(self, operand):
        if operand == "%globaltimer":
            self.special[operand] = self.special.get(operand, 0) + 30000
        if operand in self.special:
            return self.special[operand]
        if operand in self.registers:
            return self.registers[operand]
        if operand in self.module.globals:
            return self.module.globals[operand]
        if operand.startswith("0f"):
            return struct.unpack(">f", bytes.fromhex(operand[2:]))[0]
        return int(operand, 0)

    def address(self, operand):
        base, _, offset = operand[1:-1].partition("+")
        return self.value(base) + int(offset or 0)

    def run(self, code, labels):
        at = 0
        for _ in range(1_000_000):
            predicate, name, operands = code[at]
            at += 1
            if predicate and not self.registers[predicate]:
                continue
            if name == "ret":
                return
            if name == "bra":
                at = labels[operands[0]]
                continue
            self.step(name.split("."), operands)
        raise RuntimeError("the kernel does not end")

    def step(self, name, operands):
        kind = name[-1]
        if name[0] == "membar":
            return
        if name[0] == "ld":
            self.registers[operands[0]] = self.load(name, operands[1], kind)
        elif name[0] == "st":
            data, at = self.module.place(self.address(operands[0]), SIZES[kind])
            struct.pack_into(format_of(kind), data, at, self.value(operands[1]))
        else:
            values = [self.value(operand) for operand in operands[1:]]
            result = self.compute(name, values)
            if kind != "f32" and name[0] != "setp":
                bits = 64 if kind in ("u64", "b64") or "wide" in name else 32
                result &= (1 << bits) - 1
            self.registers[operands[0]] = result

    def load(self, name, operand, kind):
        if "param" in name:
            return self.parameters[operand[1:-1]]
        data, at = self.module.place(self.address(operand), SIZES[kind])
        return struct.unpack_from(format_of(kind), data, at)[0]

    def compute(self, name, v):
        operation, kind = name[0], name[-1]
        if kind == "f32":
            return rounded({"mul": lambda: v[0] * v[1], "add": lambda: v[0] + v[1],
                            "sub": lambda: v[0] - v[1]}[operation]())
        if kind == "s32":
            v = [(value + (1 << 31)) % (1 << 32) - (1 << 31) for value in v]
        if operation == "setp":
            return {"ge": v[0] >= v[1], "lt": v[0] < v[1], "ne": v[0] != v[1]}[name[1]]
        return {"mov": lambda: v[0], "add": lambda: v[0] + v[1], "sub": lambda: v[0] - v[1],
                "mul": lambda: v[0] * v[1], "mad": lambda: v[0] * v[1] + v[2],
                "rem": lambda: v[0] % v[1], "min": lambda: min(v), "and": lambda: v[0] & v[1], "or": lambda: v[0] | v[1],
                "xor": lambda: v[0] ^ v[1]}[operation]()


def format_of(kind):
    return {"f32": "<f", "u64": "<Q", "b64": "<Q"}.get(kind, "<I")
