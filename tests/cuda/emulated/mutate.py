#!/usr/bin/env python3
"""Mutants of PTX: one fence, release, acquire, barrier or exchange less, or of a smaller scope; one wait that does not wait; one load
through the read-only cache; sets of memory that do not alternate. Tests that the machine finds them.

mutate.py combine FILE.ptx OUT.ptx        writes a file that has all mutants in it: the program made of it runs the one whose number
                                          EMULATED_MUTANT is, unchanged code without, and stops where the code of mutant K is if it is -K
mutate.py list FILE.ptx                   lists the mutants: number, name
mutate.py run FILE.ptx PROGRAM [options]  runs the mutants of a program made of FILE.ptx by combine. Fails unless each one is found, or is
                                          in the list of equivalents and is not found.
  --seeds LIST (1,2,3,4,5,6): a mutant is found if a run with one of these orders of threads fails
  --equivalent FILE: blocks of lines: names of mutants, as `list` prints them, then the reason why no run of them can fail, indented. A
                     reason that begins with `Not reached` is one for code that the program does not run; it reaches all others.
                     A line `... PART` names all mutants with PART in their names.
                     With COLLS_TEST_LONG=1 they are run to their end, too, which must not find them.
  --only PART: mutants that have PART in their names
  --every N (environment COLLS_EMULATED_EVERY, or 1): the first mutant and each N-th after it alone; for combine and run the same

A mutant's name is its kernel or function, the opcode, and the line of the library that it comes from: its function and its text.
"""
import argparse
import collections
import os
import re
import resource
import signal
import subprocess
import sys

from ptx import Module

# What is weakened, and how: patterns of an instruction's text.
WEAKENED = [
    (r"(?:fence\.(?:sc|acq_rel)|membar)\.[\w.]+;", ";"),
    (r"(ld|atom|red|multimem\.ld_reduce)((?:\.\w+)*?)\.acquire\b([^;]*;)", r"\1\2.relaxed\3"),
    (r"(st|atom|red|multimem\.st|multimem\.red)((?:\.\w+)*?)\.release\b([^;]*;)", r"\1\2.relaxed\3"),
    (r"(atom|red)((?:\.\w+)*?)\.acq_rel\b([^;]*;)", r"\1\2.relaxed\3"),
    (r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?\s[^;]*;", ";"),
    (r"bar(?:\.cta)?\.red(?:\.aligned)?\.(?:and|or)\.pred\s+(%\w+),[^;]*?(!?%\w+)\s*;", r"mov.pred \1, \2;"),
    (r"bar\.warp\.sync\s[^;]*;", ";"),
    (r"shfl\.sync\.\w+\.b32\s+(%\w+)(?:\|%\w+)?,\s*(%?\w+)[^;]*;", r"mov.b32 \1, \2;"),
    (r"vote\.sync\.(?:any|all)\.pred\s+(%\w+),\s*(!?%\w+)[^;]*;", r"mov.pred \1, \2;"),
    # scopes
    (r"membar\.sys;", "membar.gl;"),
    (r"fence\.(sc|acq_rel)\.sys;", r"fence.\1.gpu;"),
    (r"(st|ld|atom|red)((?:\.\w+)*?)\.(acquire|release|acq_rel)\.sys\b([^;]*;)", r"\1\2.\3.gpu\4"),
    (r"atom\.sys\b([^;]*;)", r"atom\1"),
]
# The same, but only the first of each name, of which the others are copies.
WEAKENED_ONCE = [
    (r"(st|ld)\.relaxed\.sys\b([^;]*;)", r"\1.relaxed.gpu\2"),
    (r"ld\.global(\.v4\.u32[^;]*;)", r"ld.global.nc\1"),
]
# The same, where the line of the library has a certain text.
WEAKENED_AT = [
    # A claim that is a load and a store.
    (r"atom\.sys\.cas\.b32\s+(%\w+),\s*(\[\S+\]),\s*(\w+),\s*(%\w+);",
     r"{ .reg .pred %is_old; ld.relaxed.sys.b32 \1, \2; setp.eq.u32 %is_old, \1, \3; @%is_old st.relaxed.sys.b32 \2, \4; }", "claim"),
    # One of two words that have to be far enough is not looked at.
    (r"setp\.lt\.u64\s+(%\w+),\s*(%\w+),\s*%\w+;", r"setp.ne.u64 \1, \2, \2;", "g.reached"),
    # Sets of memory that should alternate from call to call.
    (r"and\.b32\s+(%\w+),\s*%\w+,\s*1;", r"mov.b32 \1, 0;", r"calls & 1\b|flag_? & 1|me_rank|^eager_kernel.*// namespace"),
]
# Wrappers of single instructions: a place is named by their caller.
WRAPPERS = ("device_thread_group.hpp", "cccl/", "/sm_", "/crt/")


class Place:
    """An instruction to weaken: where it is in its line, and its name."""

    def __init__(self, line, begin, end, weaker, opcode):
        self.line, self.begin, self.end, self.weaker, self.opcode, self.name = line, begin, end, weaker, opcode, ""


def demangled(names):
    names = list(names)
    done = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")
    return dict(zip(names, done))


def without_arguments(name):
    """`f` of `void a::f<b<c>>(d)`."""
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", name)) != name:
        name = shorter
    return name.replace(" const", "").split("::")[-1].split()[-1]


def short_kernel(name):
    """`schedule_kernel<6>`, `calls<ring>`: a kernel's or function's name, with its collective or the family of its schedule."""
    if m := re.search(r"(eager|schedule)_kernel<(?:colls::v1::cuda::detail::stored_schedule<)?\(colls::v1::collective\)(\d+)", name):
        return f"{m[1]}_kernel<{m[2]}>"
    family = re.search(r"colls::v1::(compose<colls::v1::)?(\w+)::(\w+)[,>]", name)
    if not family:
        return without_arguments(name)
    one_way = not family.group(1) and family.group(3) in ("broadcast", "scatter", "gather", "reduce")
    return without_arguments(name) + f"<{family.group(2)}{'::' + family.group(3) if one_way else ''}>"


class Sources:
    """The lines of source that a line of PTX comes from: from .loc directives, which say what was inlined where."""

    def __init__(self, text):
        self.files, self.at, labels, label = {}, {}, {}, None
        for m in re.finditer(r'\.file\s+(\d+)\s+"([^"]*)"', text):
            self.files[m.group(1)] = m.group(2)
        for line in text[text.find(".debug_str"):].split("\n"):
            if m := re.match(r"(\$L__info_string\d+):", line):
                label = m.group(1)
                labels[label] = ""
            elif label and line.startswith(".b8"):
                labels[label] += "".join(chr(int(c)) for c in line[4:].split(",") if c != "0")
        names = demangled(labels.values())
        known, current = {}, []
        loc = re.compile(r"\s*\.loc\s+(\d+) (\d+) (\d+)(?:, function_name (\S+?), inlined_at (\d+ \d+ \d+))?\s*$")
        for number, line in enumerate(text.split("\n"), 1):
            if m := loc.match(line):
                here = " ".join(m.groups()[:3])
                current = [(m.group(1), int(m.group(2)), names[labels[m.group(4)]] if m.group(4) else None)]
                current += known.get(m.group(5), []) if m.group(5) else []
                known[here] = current
            self.at[number] = current

    def name(self, line, function):
        """The innermost place that is not in a wrapper: function and text."""
        for file, number, inlined in self.at[line]:
            path = self.files[file]
            if any(w in path for w in WRAPPERS):
                continue
            with open(path, encoding="utf-8") as f:
                return f"{without_arguments(inlined) if inlined else function}: {f.readlines()[number - 1].strip()}"
        return "?"


def places(text):
    """All places, in the order of the file."""
    module, lines, sources, found, times = Module(text), text.split("\n"), Sources(text), [], collections.Counter()
    names = demangled(f.name for f in module.functions)
    for f in module.functions:
        kernel = short_kernel(names[f.name])
        for line in range(f.body[0].line, f.body[-1].line + 1) if f.body else ():
            for pattern, weaker, *text_part in WEAKENED + WEAKENED_ONCE + WEAKENED_AT:
                for m in re.finditer(r"(?<![\w.%$])" + pattern, lines[line - 1].split("//")[0]):
                    p = Place(line, m.start(), m.end(), m.expand(weaker), m.group().split()[0].rstrip(";"))
                    source = sources.name(line, without_arguments(names[f.name]))
                    if text_part and not re.search(text_part[0], f"{kernel}: {source}"):
                        continue
                    p.name = f"{kernel}, {p.opcode}{way_of(p)}, {source}"
                    times[p.name] += 1
                    copy = times[p.name]
                    if copy > 1 and (pattern, weaker) in WEAKENED_ONCE:
                        continue
                    if copy > 1:
                        p.name += f" (copy {copy})"
                    found.append(p)
    return found


def way_of(place):
    """How it is weakened, where it is not removed or made relaxed."""
    if place.weaker.startswith("{"):
        return " in two"
    new = place.weaker.split()[0].rstrip(";")
    ways = {"membar.gl": " to gl", "ld.global.nc.v4.u32": " to nc", "atom.cas.b32": " to gpu", "setp.ne.u64": " is false", "mov.b32": " is 0"}
    if place.opcode.startswith("shfl"):
        return ""
    return ways.get(new, " to gpu" if ".sys" in place.opcode and ".gpu" in new else "")


def combined(text, all_places):
    lines, of_instruction = text.split("\n"), collections.defaultdict(list)
    for k, p in enumerate(all_places, 1):
        of_instruction[p.line, p.begin].append((k, p))
    for (number, at), mutants in sorted(of_instruction.items(), reverse=True):
        line, end, after = lines[number - 1], mutants[0][1].end, f"$after_{mutants[0][0]}"
        guard = re.search(r"@!?%\w+\s+$", line[:at])
        begin, guard = (guard.start(), guard.group()) if guard else (at, "")
        choice = "".join(f"setp.eq.u32 %is_mutant, %mutant, {k}; @%is_mutant bra $mutant_{k}; "
                         f"setp.ne.u32 %is_mutant, %mutant, -{k}; @%is_mutant bra $original_{k}; {guard}trap; $original_{k}: " for k, _ in mutants)
        weaker = "".join(f"$mutant_{k}: {'' if p.weaker == ';' or p.weaker.startswith('{') else guard}{p.weaker} bra {after}; " for k, p in mutants)
        lines[number - 1] = (f"{line[:begin]}{{ .reg .pred %is_mutant; {choice}{guard}{line[at:end]} bra {after}; {weaker}{after}: }}{line[end:]}")
    return "\n".join(lines)


def limit():
    """Of processor time: a run takes 2 s of it, and how long it waits for a processor says nothing."""
    resource.setrlimit(resource.RLIMIT_CPU, (40, 41))


def failure(program, mutant, seeds):
    """How a run with one of these seeds fails; None if none does."""
    for seed in seeds:
        try:
            done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=600, preexec_fn=limit,
                                  env={**os.environ, "EMULATED_SEED": seed, "EMULATED_MUTANT": str(mutant)})
        except subprocess.TimeoutExpired:
            return f"seed {seed}: does not end, and waits"
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return f"seed {seed}: does not end"
        if done.returncode != 0:
            message = (done.stderr + done.stdout).strip().split("\n")
            return f"seed {seed}: " + (message[0] or f"ends with {done.returncode}")
    return None


def read_equivalents(path, all_places):
    """Names and reasons."""
    reasons, names = {}, []
    with open(path, encoding="utf-8") as f:
        for line in f:
            if line.startswith("#") or not line.strip():
                continue
            if not line[0].isspace():
                if names and reasons[names[0]]:
                    names = []
                name = line.strip()
                several = [p.name for p in all_places if name.startswith("... ") and name[4:] in p.name and p.name not in reasons]
                for n in several or [name]:
                    names.append(n)
                    reasons[n] = ""
            else:
                reasons.update({name: reasons[name] + line.strip() + " " for name in names})
    if empty := [n for n, reason in reasons.items() if not reason]:
        sys.exit(f"{path}: there is no reason for {empty[0]}")
    return reasons


def run(options, all_places, tried):
    program, seeds = os.path.abspath(options.more), options.seeds.split(",")
    reasons = read_equivalents(options.equivalent, all_places) if options.equivalent else {}
    unknown = set(reasons) - {p.name for p in all_places}
    wrong = [f"in the list of equivalents, and no mutant: {name}" for name in sorted(unknown)]
    if how := failure(program, 0, seeds):
        sys.exit(f"the program fails unchanged: {how}")
    found = equivalent = 0
    for k, p in enumerate(tried, 1):
        if options.only not in p.name:
            continue
        reason = reasons.get(p.name)
        runs = seeds if reason is None else seeds[:1] if "COLLS_TEST_LONG" in os.environ else []
        how = failure(program, k, runs)
        is_reached = how or failure(program, -k, seeds[:1])
        if how and reason is None:
            print(f"found: {p.name}: {how[:160]}", flush=True)
            found += 1
        elif how:
            wrong.append(f"in the list of equivalents, and found: {p.name}: {how}")
        elif reason is not None and bool(is_reached) != reason.startswith("Not reached"):
            equivalent += 1
        elif is_reached:
            wrong.append(f"not found, line {p.line}: {p.name}")
        else:
            wrong.append(f"not reached by the program, line {p.line}: {p.name}")
    for text in wrong:
        print(text)
    print(f"{found} mutants found, {equivalent} equivalent, {len(wrong)} wrong, of {len(tried)} tried and {len(all_places)} in all")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("combine", "list", "run"))
    parser.add_argument("ptx")
    parser.add_argument("more", nargs="?")
    parser.add_argument("--seeds", default="1,2,3,4,5,6")
    parser.add_argument("--equivalent")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=int(os.environ.get("COLLS_EMULATED_EVERY", "1")))
    options = parser.parse_args()
    with open(options.ptx, encoding="utf-8") as f:
        text = f.read()
    found = places(text)
    tried = found[:: options.every]
    if options.what == "run":
        return run(options, found, tried)
    if options.what == "list":
        for k, p in enumerate(tried, 1):
            print(f"{k}: {p.name}")
    else:
        with open(options.more, "w", encoding="utf-8") as f:
            f.write(combined(text, tried))
    return 0


if __name__ == "__main__":
    sys.exit(main())
