"""Reads PTX: statements with their lines, instructions with their parts."""
import re


class PtxError(Exception):
    """What is wrong, at which line of the PTX."""

    def __init__(self, line, text):
        super().__init__(f"line {line}: {text}")


class Statement:
    """One of: 'open', 'close' (braces), 'label', 'header' (.entry, .func), 'directive', 'instruction'."""

    def __init__(self, kind, line, text="", has_body=False):
        self.kind, self.line, self.text, self.has_body = kind, line, text, has_body


class Instruction:
    """`@!guard opcode.modifiers operands`. `names` are the opcode's parts, `operands` texts; a vector operand is a list."""

    def __init__(self, line, text):
        self.line, self.text = line, text
        self.guard = self.guard_is_negated = None
        m = re.match(r"@(!?)\s*(%?[\w$.]+)\s+(.*)$", text, re.S)
        if m:
            self.guard_is_negated, self.guard, text = m.group(1) == "!", m.group(2), m.group(3)
        opcode, _, rest = text.partition(" ")
        self.opcode = opcode
        self.names = opcode.replace("::", "_").split(".")
        self.operands = [vector_or_text(o) for o in split_operands(rest)]

    def has(self, *names):
        return any(n in self.names for n in names)

    def first(self, *names):
        """The first of the names that the opcode has, or None."""
        return next((n for n in names if n in self.names), None)


def split_operands(text):
    """Splits at commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    last = text[begin:].strip()
    return parts + [last] if last else parts


def vector_or_text(operand):
    return [x.strip() for x in operand[1:-1].split(",")] if operand.startswith("{") else operand


TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<section>\.section\b[^{]*\{[^}]*\})
      | (?P<line>\.(?:version|target|address_size|file|loc)\b[^\n]*)
      | (?P<brace>[{}])
      | (?P<label>[$\w]+\s*:(?!:))
      | (?P<header>(?:\.(?:visible|weak|extern)\s+)*\.(?:entry|func)\b[^{;]*[{;])
      | (?P<rest>[^;]*;)""", re.S | re.X)


def statements(text):
    """All statements of a PTX file, in order."""
    at, line, found = 0, 1, []
    while at < len(text):
        m = TOKEN.match(text, at)
        if not m:
            raise PtxError(line, f"cannot be read: {text[at:at + 40]!r}")
        kind, body = m.lastgroup, m.group()
        if kind == "brace":
            found.append(Statement("open" if body == "{" else "close", line))
        elif kind == "label":
            found.append(Statement("label", line, body.rstrip()[:-1].strip()))
        elif kind == "header":
            found.append(Statement("header", line, " ".join(body[:-1].split()), body[-1] == "{"))
            if body[-1] == "{":
                found.append(Statement("open", line + body.count("\n")))
        elif kind == "line":
            found.append(Statement("directive", line, body.strip()))
        elif kind == "rest":
            flat = " ".join(re.sub(r"//[^\n]*", " ", body[:-1]).split())
            if flat:
                found.append(Statement("directive" if flat.startswith(".") else "instruction", line, flat))
        at = m.end()
        line += body.count("\n")
    return found


DECLARATION = re.compile(
    r"(?:\.(?:visible|weak|extern|managed|attribute\([^)]*\))\s+)*\.(?P<space>param|shared|global|const|local)\s+"
    r"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s+(?:\.(?:global|shared|const|local)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[%$\w]+)(?P<dims>(?:\[\d*\])*)\s*(?:=\s*(?P<value>.*))?$", re.S)
BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4,
         "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "pred": 1}


class Variable:
    """A declared variable: its space, name, bytes, alignment, and the values it begins with."""

    def __init__(self, line, text):
        m = DECLARATION.match(text)
        if not m:
            raise PtxError(line, f"declaration is not understood: {text[:80]}")
        self.line, self.space, self.name, self.type = line, m["space"], m["name"], m["type"]
        element = BYTES[self.type]
        self.align = int(m["align"] or element)
        counts = [int(c) if c else 0 for c in re.findall(r"\[(\d*)\]", m["dims"])]
        self.is_extern = ".extern" in text.split(m["name"])[0] or 0 in counts
        self.bytes = element
        for c in counts:
            self.bytes *= c
        self.values = None
        if m["value"]:
            self.values = [v.strip() for v in m["value"].strip("{} ").split(",")]


class Function:
    """A .entry or .func: name, parameters (Variables), and its body's statements; without a body, a declaration."""

    def __init__(self, header):
        self.line, self.is_entry, self.has_body = header.line, ".entry" in header.text, header.has_body
        m = re.match(r"(?:\.\w+ )*?\.(?:entry|func)\s*(?:\((?P<out>[^)]*)\))?\s*(?P<name>[$\w]+)\s*(?:\((?P<params>[^)]*)\))?(?P<rest>.*)$",
                     header.text)
        self.name = m["name"]
        self.results = [Variable(header.line, p) for p in split_operands(m["out"] or "")]
        self.parameters = [Variable(header.line, p) for p in split_operands(m["params"] or "")]
        threads = re.search(r"\.(?:maxntid|reqntid)\s+([\d, ]+)", m["rest"])
        self.max_threads = 1024
        if threads:
            self.max_threads = 1
            for n in threads.group(1).split(","):
                self.max_threads *= int(n)
        self.body = []


class Module:
    """A PTX file: functions, variables, and where source lines begin (`lines`: PTX line, file, source line)."""

    def __init__(self, text):
        self.functions, self.variables, self.lines, files, depth, current = [], [], [], {}, 0, None
        for s in statements(text):
            if s.kind == "directive" and s.text.startswith(".file"):
                m = re.match(r'\.file\s+(\d+)\s+"([^"]*)"', s.text)
                files[int(m.group(1))] = m.group(2)
            elif s.kind == "directive" and s.text.startswith((".loc ", ".loc\t")):
                number, source = s.text.replace(",", " ").split()[1:3]
                self.lines.append((s.line, int(number), int(source)))
            elif s.kind == "header":
                current = Function(s)
                self.functions.append(current)
                if not s.has_body:
                    current = None
            elif current:
                depth += (s.kind == "open") - (s.kind == "close")
                if depth == 0:
                    current = None
                elif not (s.kind == "open" and depth == 1):
                    current.body.append(s)
            elif s.kind == "directive" and re.search(r"\.(global|const|shared)\b", s.text):
                self.variables.append(Variable(s.line, s.text))
        self.lines = [(line, files.get(number, "?"), source) for line, number, source in self.lines]
