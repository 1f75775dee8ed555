#!/usr/bin/env python3
"""Mutants of PTX: one fence, release, acquire, barrier or exchange less. Tests that the machine finds them.

mutate.py list FILE.ptx                    lists the places, numbered
mutate.py write FILE.ptx NUMBER OUT.ptx    writes the mutant
mutate.py run FILE.ptx [options] OBJECT... runs mutants of a program: OBJECT are the objects and libraries it is linked from, but for the
                                           translation of FILE.ptx. Prints each mutant that is not found; fails if there is one that
                                           the file --equivalent does not list.
  --seeds N (3)  --every N: each N-th mutant (1)  --kernel PART: only kernels with PART in their name, and functions
  --equivalent FILE: lines `PLACE  REASON`, PLACE as in the list: opcode and source line
A place that the program does not reach (`trap` there stops nothing) is reported as such, and is no failure.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

from ptx import Module

HERE = os.path.dirname(os.path.abspath(__file__))
# What is weakened, and how: patterns of an instruction's text.
WEAKENED = [
    (r"(?:fence\.(?:sc|acq_rel)|membar)\.[\w.]+;", ";"),
    (r"(ld|atom|red|multimem\.ld_reduce)((?:\.\w+)*?)\.acquire\b", r"\1\2.relaxed"),
    (r"(st|atom|red|multimem\.st|multimem\.red)((?:\.\w+)*?)\.release\b", r"\1\2.relaxed"),
    (r"(atom|red)((?:\.\w+)*?)\.acq_rel\b", r"\1\2.relaxed"),
    (r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?\s[^;]*;", ";"),
    (r"bar(?:\.cta)?\.red(?:\.aligned)?\.(?:and|or)\.pred\s+(%\w+),[^;]*?(!?%\w+)\s*;", r"mov.pred \1, \2;"),
    (r"bar\.warp\.sync\s[^;]*;", ";"),
    (r"shfl\.sync\.\w+\.b32\s+(%\w+)(?:\|%\w+)?,\s*(%?\w+)[^;]*;", r"mov.b32 \1, \2;"),
    (r"vote\.sync\.(?:any|all)\.pred\s+(%\w+),\s*(!?%\w+)[^;]*;", r"mov.pred \1, \2;"),
]


class Place:
    """An instruction to weaken: its line, the kernel or function, the source line, and the lines of the mutant and of a trap there."""

    def __init__(self, line, function, source, opcode, mutant, trap):
        self.line, self.function, self.source, self.opcode, self.mutant, self.trap = line, function, source, opcode, mutant, trap
        self.name = f"{opcode} {source}"


def places(text):
    module, lines, found = Module(text), text.split("\n"), []
    sources = {line: f"{os.path.basename(file)}:{source}" for line, file, source in module.lines}
    for f in module.functions:
        source = "?"
        first = f.body[0].line if f.body else 0
        for line in range(first, f.body[-1].line + 1 if f.body else 0):
            source = sources.get(line, source)
            for pattern, weaker in WEAKENED:
                for m in re.finditer(r"(?<![\w.%$])" + pattern, lines[line - 1].split("//")[0]):
                    before, after = lines[line - 1][:m.start()], lines[line - 1][m.end():]
                    guarded = before[:before.rfind("@")] if "@" in before else before
                    found.append(Place(line, f.name, source, m.group().split()[0].rstrip(";"), before + m.expand(weaker) + after,
                                       guarded + "trap; " + lines[line - 1][len(guarded):]))
    return found


def mutant(text, place, line):
    lines = text.split("\n")
    lines[place.line - 1] = re.sub(r"@!?%\w+\s+;", ";", line)
    return "\n".join(lines)


def is_found(text, objects, seeds, folder):
    """How a program of this PTX fails: None if it does not."""
    ptx, cpp, program = (os.path.join(folder, n) for n in ("mutant.ptx", "mutant.cpp", "mutant"))
    with open(ptx, "w", encoding="utf-8") as f:
        f.write(text)
    subprocess.run([sys.executable, os.path.join(HERE, "translate.py"), ptx, cpp], check=True)
    subprocess.run(["g++", "-std=c++20", "-O1", "-w", "-I", HERE, cpp, *objects, "-o", program, "-lpthread", "-lrt"], check=True)
    for seed in range(1, seeds + 1):
        try:
            done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=20, env={**os.environ, "PLAYED_SEED": str(seed)})
        except subprocess.TimeoutExpired:
            return f"seed {seed}: does not end"
        if done.returncode != 0:
            message = (done.stderr + done.stdout).strip().split("\n")
            return f"seed {seed}: " + (message[0] or f"ends with {done.returncode}")
    return None


def run(options, text):
    equivalent = {}
    if options.equivalent:
        with open(options.equivalent, encoding="utf-8") as f:
            for line in f:
                if line.strip() and not line.startswith("#"):
                    opcode, source, reason = line.split(None, 2)
                    equivalent[f"{opcode} {source}"] = reason.strip()
    entries = {f.name for f in Module(text).functions if f.is_entry}
    all_places = [p for p in places(text) if options.kernel in p.function or p.function not in entries]
    chosen, missed, unreached, found = all_places[::options.every], 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        if how := is_found(text, options.objects, options.seeds, folder):
            sys.exit(f"the program fails unchanged: {how}")
        for p in chosen:
            how = is_found(mutant(text, p, p.mutant), options.objects, options.seeds, folder)
            if how:
                found += 1
                print(f"found: {p.name}, line {p.line}: {how[:150]}", flush=True)
            elif p.name in equivalent:
                print(f"equivalent: {p.name}, line {p.line}: {equivalent[p.name]}", flush=True)
            elif not is_found(mutant(text, p, p.trap), options.objects, 1, folder):
                unreached += 1
                print(f"not reached: {p.name}, line {p.line}", flush=True)
            else:
                missed += 1
                print(f"NOT FOUND: {p.name}, line {p.line} of {p.function}", flush=True)
    print(f"{len(chosen)} mutants of {len(all_places)}: {found} found, {missed} not found, {unreached} not reached")
    return 1 if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("list", "write", "run"))
    parser.add_argument("ptx")
    parser.add_argument("objects", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--kernel", default="")
    parser.add_argument("--equivalent")
    options = parser.parse_intermixed_args()
    with open(options.ptx, encoding="utf-8") as f:
        text = f.read()
    if options.what == "run":
        return run(options, text)
    found = places(text)
    if options.what == "list":
        for k, p in enumerate(found):
            print(f"{k}: {p.name}, line {p.line} of {p.function}")
    else:
        p = found[int(options.objects[0])]
        with open(options.objects[1], "w", encoding="utf-8") as f:
            f.write(mutant(text, p, p.mutant))
    return 0


if __name__ == "__main__":
    sys.exit(main())
