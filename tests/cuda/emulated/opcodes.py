#!/usr/bin/env python3
"""Tests each opcode form of translate.py against a reference in exact arithmetic (integers and fractions), on random and extreme operands.

opcodes.py write FILE.ptx: writes a kernel for each form. opcodes.py check PROGRAM: runs them by PROGRAM (run_kernels.cpp) and compares.
"""
import math
import random
import struct
import subprocess
import sys
from fractions import Fraction

COUNT = 64  # threads: each form is tested on so many operands


# ---- references

class Format:
    """A binary float of `exponent` and `mantissa` bits; `infinity` is False for formats whose largest exponent has numbers."""

    def __init__(self, exponent, mantissa, nan, largest, infinity=True):
        self.exponent, self.mantissa, self.nan, self.largest, self.infinity = exponent, mantissa, nan, largest, infinity
        self.bias = (1 << exponent - 1) - 1
        self.bits = 1 + exponent + mantissa

    def decode(self, bits):
        """The value: a Fraction, 'nan', 'inf', '-inf', or '-0'."""
        magnitude = bits & (1 << self.bits - 1) - 1
        sign = -1 if bits >> self.bits - 1 & 1 else 1
        if magnitude > self.largest:
            if self.infinity and magnitude == self.largest + 1:
                return "inf" if sign > 0 else "-inf"
            return "nan"
        exponent, fraction = magnitude >> self.mantissa, magnitude & (1 << self.mantissa) - 1
        if magnitude == 0 and sign < 0:
            return "-0"
        if exponent == 0:
            return sign * Fraction(fraction) * Fraction(2) ** (1 - self.bias - self.mantissa)
        return sign * Fraction(fraction + (1 << self.mantissa)) * Fraction(2) ** (exponent - self.bias - self.mantissa)

    def encode(self, value, mode="rn", saturate=False):
        top = 1 << self.bits - 1
        if value == "nan":
            return self.nan
        if value in ("inf", "-inf"):
            return (top if value == "-inf" else 0) | (self.largest if saturate or not self.infinity else self.largest + 1)
        if value == "-0":
            return top
        negative, value = value < 0, abs(value)
        # The candidates are consecutive in their bits: look for the largest one that is not above the value.
        low, high = 0, self.largest
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.decode(middle) <= value else (low, middle - 1)
        below = self.decode(low)
        above = self.decode(low + 1) if low < self.largest else Fraction(2) ** (self.largest >> self.mantissa) * 0 + below + (
            below - self.decode(low - 1))
        if value == below:
            up = False
        elif mode == "rn":
            up = value - below > above - value or (value - below == above - value and low % 2 == 1)
        else:
            up = mode == ("rm" if negative else "rp")
        if up and low == self.largest:
            low = self.largest if saturate else self.largest + 1
        elif up:
            low += 1
        elif low == self.largest and value > below and mode == "rn" and value - below >= above - value:
            low = self.largest if saturate else self.largest + 1
        return (top if negative else 0) | low


F16, BF16 = Format(5, 10, 0x7fff, 0x7bff), Format(8, 7, 0x7fff, 0x7f7f)
F32, F64 = Format(8, 23, 0x7fffffff, 0x7f7fffff), Format(11, 52, (1 << 63) - 1, 0x7fefffffffffffff)
E4M3, E5M2 = Format(4, 3, 0x7f, 0x7e, infinity=False), Format(5, 2, 0x7f, 0x7b)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "e4m3": E4M3, "e5m2": E5M2}


def number(x):
    return Fraction(0) if x == "-0" else x


def is_special(*values):
    return any(v in ("nan", "inf", "-inf") for v in values)


def signed(x, bits):
    return x - (1 << bits) if x >> bits - 1 & 1 else x


def as_int(x, kind):
    bits = int(kind[1:])
    x &= (1 << bits) - 1
    return signed(x, bits) if kind[0] == "s" else x


def clamp(x, kind):
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, x))


# ---- cases: text of the instruction, kinds of its operands, kind of the result, and the reference, which takes and returns bits

class Case:
    def __init__(self, text, operands, result, reference, prepare=None):
        self.text, self.operands, self.result, self.reference, self.prepare = text, operands, result, reference, prepare


CASES = []


def case(text, operands, result, reference, prepare=None):
    CASES.append(Case(text, operands.split(), result, reference, prepare))


def integer_cases():
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        n, w = int(kind[1:]), f"{kind[0]}{2 * int(kind[1:])}"

        def on(f, kind=kind):
            return lambda *a: f(*(as_int(x, kind) for x in a))

        three = f"{kind} {kind}"
        case(f"add.{kind} %d, %a, %b;", three, kind, on(lambda a, b: a + b))
        case(f"sub.{kind} %d, %a, %b;", three, kind, on(lambda a, b: a - b))
        case(f"mul.lo.{kind} %d, %a, %b;", three, kind, on(lambda a, b: a * b))
        case(f"mul.hi.{kind} %d, %a, %b;", three, kind, on(lambda a, b, n=n: a * b >> n))
        case(f"mad.lo.{kind} %d, %a, %b, %c;", f"{three} {kind}", kind, on(lambda a, b, c: a * b + c))
        case(f"div.{kind} %d, %a, %b;", three, kind, on(lambda a, b: int(Fraction(a, b)) if b else -1))
        case(f"rem.{kind} %d, %a, %b;", three, kind, on(lambda a, b: a - b * int(Fraction(a, b)) if b else a))
        case(f"min.{kind} %d, %a, %b;", three, kind, on(min))
        case(f"max.{kind} %d, %a, %b;", three, kind, on(max))
        case(f"shr.{kind} %d, %a, %b;", f"{kind} n32", kind, lambda a, b, kind=kind: as_int(a, kind) >> min(b, 64))
        if n < 64:
            case(f"mul.wide.{kind} %d, %a, %b;", three, w, on(lambda a, b: a * b))
            case(f"mad.wide.{kind} %d, %a, %b, %c;", f"{three} {w}", w,
                 lambda a, b, c, kind=kind: as_int(a, kind) * as_int(b, kind) + c)
        for name, f in (("eq", lambda a, b: a == b), ("ne", lambda a, b: a != b), ("lt", lambda a, b: a < b), ("le", lambda a, b: a <= b),
                        ("gt", lambda a, b: a > b), ("ge", lambda a, b: a >= b)):
            case(f"setp.{name}.{kind} %p, %a, %b; selp.u32 %d, 1, 0, %p;", three, "u32", on(f))
        if kind[0] == "s":
            case(f"neg.{kind} %d, %a;", kind, kind, on(lambda a: -a))
            case(f"abs.{kind} %d, %a;", kind, kind, on(abs))
        if n >= 32:
            case(f"bfind.{kind} %d, %a;", kind, "u32", on(lambda a: (a if a >= 0 else ~a).bit_length() - 1))
            case(f"bfind.shiftamt.{kind} %d, %a;", kind, "u32",
                 on(lambda a, n=n: n - (a if a >= 0 else ~a).bit_length() if (a if a >= 0 else ~a) else -1))

            def field(a, b, c, kind=kind, n=n):
                b, c = b & 255, c & 255
                if c == 0:
                    return 0
                value = as_int(a, kind)
                if kind[0] == "u":
                    return value >> b & (1 << c) - 1
                top = value >> min(b + c - 1, n - 1) & 1  # the sign of the field fills the rest
                return (value & (1 << n) - 1) >> b & (1 << c) - 1 | (-top << c)
            case(f"bfe.{kind} %d, %a, %b, %c;", f"{kind} n32 n32", kind, field)
    for name, sign in (("lo", "<"), ("ls", "<="), ("hi", ">"), ("hs", ">=")):
        case(f"setp.{name}.u32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", "u32 u32", "u32", lambda a, b, s=sign: eval(f"{a}{s}{b}"))
    case("add.sat.s32 %d, %a, %b;", "s32 s32", "s32", lambda a, b: clamp(signed(a, 32) + signed(b, 32), "s32"))
    case("sub.sat.s32 %d, %a, %b;", "s32 s32", "s32", lambda a, b: clamp(signed(a, 32) - signed(b, 32), "s32"))


def bit_cases():
    for n in (16, 32, 64):
        b = f"b{n}"
        case(f"and.{b} %d, %a, %b;", f"{b} {b}", b, lambda x, y: x & y)
        case(f"or.{b} %d, %a, %b;", f"{b} {b}", b, lambda x, y: x | y)
        case(f"xor.{b} %d, %a, %b;", f"{b} {b}", b, lambda x, y: x ^ y)
        case(f"not.{b} %d, %a;", b, b, lambda x: ~x)
        case(f"shl.{b} %d, %a, %b;", f"{b} n32", b, lambda x, y: x << min(y, 64))
        case(f"selp.{b} %d, %a, %b, %p;", f"{b} {b} u32", b, lambda x, y, z: x if z & 1 else y, "and.b32 %c, %c, 1; setp.ne.u32 %p, %c, 0;")
    for n in (32, 64):
        b = f"b{n}"
        case(f"popc.{b} %d, %a;", b, "u32", lambda x: bin(x).count("1"))
        case(f"clz.{b} %d, %a;", b, "u32", lambda x, n=n: n - x.bit_length())
        case(f"brev.{b} %d, %a;", b, b, lambda x, n=n: int(f"{x:0{n}b}"[::-1], 2))

        def insert(x, y, z, n=n):  # at position 7, or 60
            mask = ((1 << (z & 255)) - 1) << 7 & (1 << n) - 1
            return y & ~mask | x << 7 & mask
        case(f"bfi.{b} %d, %a, %b, 7, %c;", f"{b} {b} n32", b, insert)
    case("lop3.b32 %d, %a, %b, %c, 0xE8;", "b32 b32 b32", "b32", lambda a, b, c: (a & b) | (a & c) | (b & c))
    case("lop3.b32 %d, %a, %b, %c, 0x1D;", "b32 b32 b32", "b32",
         lambda a, b, c: sum(((0x1D >> ((a >> k & 1) * 4 + (b >> k & 1) * 2 + (c >> k & 1))) & 1) << k for k in range(32)))

    def permute(a, b, c):
        bytes_ = [(b << 32 | a) >> 8 * k & 255 for k in range(8)]
        chosen = [(bytes_[s & 7], s & 8) for s in (c >> 4 * k & 15 for k in range(4))]
        return sum((255 * (v >> 7) if sign else v) << 8 * k for k, (v, sign) in enumerate(chosen))
    case("prmt.b32 %d, %a, %b, %c;", "b32 b32 b32", "b32", permute)
    case("shf.l.wrap.b32 %d, %a, %b, %c;", "b32 b32 n32", "b32", lambda a, b, c: (b << 32 | a) << (c & 31) >> 32)
    case("shf.r.wrap.b32 %d, %a, %b, %c;", "b32 b32 n32", "b32", lambda a, b, c: (b << 32 | a) >> (c & 31))
    case("shf.l.clamp.b32 %d, %a, %b, %c;", "b32 b32 n32", "b32", lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32)
    case("shf.r.clamp.b32 %d, %a, %b, %c;", "b32 b32 n32", "b32", lambda a, b, c: (b << 32 | a) >> min(c, 32))
    case("mov.b64 %d, {%a, %b};", "b32 b32", "b64", lambda a, b: b << 32 | a)
    case("mov.b32 %d, {%a, %b};", "b16 b16", "b32", lambda a, b: b << 16 | a)
    case("{ .reg .b32 %x; mov.b64 {%x, %d}, %a; }", "b64", "b32", lambda a: a >> 32)
    case("{ .reg .b16 %x, %y; mov.b32 {%x, %y}, %a; mov.b32 %d, {%y, %x}; }", "b32", "b32", lambda a: a << 16 | a >> 16)
    case("setp.lt.and.u32 %p, %a, %b, %q; selp.u32 %d, 1, 0, %p;", "u32 u32 u32", "u32", lambda a, b, c: a < b and c & 1,
         "and.b32 %c, %c, 1; setp.ne.u32 %q, %c, 0;")
    case("setp.lt.or.u32 %p|%q, %a, %b, %q; selp.u32 %d, 1, 0, %q;", "u32 u32 u32", "u32", lambda a, b, c: a >= b or c & 1,
         "and.b32 %c, %c, 1; setp.ne.u32 %q, %c, 0;")
    case("set.lt.u32.s32 %d, %a, %b;", "s32 s32", "u32", lambda a, b: -(signed(a, 32) < signed(b, 32)))
    case("slct.b32.s32 %d, %a, %b, %c;", "b32 b32 s32", "b32", lambda a, b, c: a if signed(c, 32) >= 0 else b)


def float_arithmetic(kind):
    f = FORMATS[kind]

    def exact(name):
        def reference(*bits):
            v = [f.decode(b) for b in bits]
            if is_special(*v):
                x = [{"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0}.get(y, None) if isinstance(y, str) else
                     math.copysign(1.0, y) if y else 0.0 for y in v]
                if name == "div":
                    r = x[0] / x[1] if x[1] else (math.nan if math.isnan(x[0]) else x[0] * math.copysign(1, x[1]))
                else:
                    r = {"add": lambda: x[0] + x[1], "sub": lambda: x[0] - x[1], "mul": lambda: x[0] * x[1],
                         "fma": lambda: x[0] * x[1] + x[2]}[name]()
                return f.encode("nan" if math.isnan(r) else "-0" if r == 0 and math.copysign(1, r) < 0 else Fraction(0) if r == 0 else
                                "inf" if r > 0 else "-inf")
            negative = [y == "-0" or (y != 0 and number(y) < 0) for y in v]
            x = [number(y) for y in v]
            if name == "div":
                if x[1] == 0:
                    return f.encode("nan" if x[0] == 0 else "-inf" if negative[0] != negative[1] else "inf")
                r = x[0] / x[1]
            else:
                r = {"add": lambda: x[0] + x[1], "sub": lambda: x[0] - x[1], "mul": lambda: x[0] * x[1], "fma": lambda: x[0] * x[1] + x[2]}[name]()
            if r == 0:
                product = negative[0] != negative[1]
                minus = {"add": negative[0] and negative[1], "sub": negative[0] and not negative[1], "mul": product, "div": product,
                         "fma": product and negative[-1] and x[0] * x[1] == 0 if name == "fma" else False}[name]
                return f.encode("-0" if minus else Fraction(0))
            if f.encode(r) & (1 << f.bits - 1) - 1 == 0:
                return f.encode("-0" if r < 0 else Fraction(0))
            return f.encode(r)
        return reference
    rn = ".rn"
    case(f"add{rn}.{kind} %d, %a, %b;", f"{kind} {kind}", kind, exact("add"))
    case(f"sub{rn}.{kind} %d, %a, %b;", f"{kind} {kind}", kind, exact("sub"))
    case(f"mul{rn}.{kind} %d, %a, %b;", f"{kind} {kind}", kind, exact("mul"))
    case(f"fma{rn}.{kind} %d, %a, %b, %c;", f"{kind} {kind} {kind}", kind, exact("fma"))
    if kind in ("f32", "f64"):
        case(f"div{rn}.{kind} %d, %a, %b;", f"{kind} {kind}", kind, exact("div"))

    def extreme(larger, keep=False):
        def reference(a, b):
            x, y = f.decode(a), f.decode(b)
            if "nan" in (x, y):
                return f.nan if keep or x == y else b if x == "nan" else a

            def rank(v):
                return {"inf": (2, 0), "-inf": (-2, 0), "-0": (0, Fraction(-1, 10 ** 400))}.get(v, (0, v)) if isinstance(v, str) else (0, v)
            return (a if (rank(x) > rank(y)) == larger else b) if rank(x) != rank(y) else a
        return reference
    case(f"min.{kind} %d, %a, %b;", f"{kind} {kind}", kind, extreme(False))
    case(f"max.{kind} %d, %a, %b;", f"{kind} {kind}", kind, extreme(True))
    if kind != "f64":
        case(f"max.NaN.{kind} %d, %a, %b;", f"{kind} {kind}", kind, extreme(True, True))
    case(f"neg.{kind} %d, %a;", kind, kind, lambda a: a ^ 1 << f.bits - 1)
    case(f"abs.{kind} %d, %a;", kind, kind, lambda a: a & ~(1 << f.bits - 1))

    def compare(name):
        def reference(a, b):
            x, y = f.decode(a), f.decode(b)
            unordered = "nan" in (x, y)
            if name in ("num", "nan"):
                return unordered == (name == "nan")
            if unordered:
                return name.endswith("u")
            x, y = ({"inf": Fraction(10) ** 400, "-inf": -Fraction(10) ** 400}.get(v, number(v)) if isinstance(v, str) else v for v in (x, y))
            return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[name.removesuffix("u")]
        return reference
    for name in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        case(f"setp.{name}.{kind} %p, %a, %b; selp.u32 %d, 1, 0, %p;", f"{kind} {kind}", "u32", compare(name))


def conversion_cases():
    integers = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
    for to in integers:
        for from_ in integers:
            if to != from_:
                case(f"cvt.{to}.{from_} %d, %a;", from_, to, lambda a, f=from_: as_int(a, f))
    for to in integers[2:]:
        for from_ in integers[2:]:
            if clamp(1 << 70, from_) > clamp(1 << 70, to) or clamp(-1 << 70, from_) < clamp(-1 << 70, to):
                case(f"cvt.sat.{to}.{from_} %d, %a;", from_, to, lambda a, t=to, f=from_: clamp(as_int(a, f), t))
    whole = {"rni": lambda v: round(v), "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}

    def to_integer(f, to, mode):
        def reference(a):
            v = FORMATS[f].decode(a)
            if v == "nan":
                return 1 << 63 if to[1:] == "64" else 0
            if is_special(v):
                return clamp(1 << 80 if v == "inf" else -(1 << 80), to)
            return clamp(whole[mode](number(v)), to)
        return reference
    for f in ("f16", "bf16", "f32", "f64"):
        for to in ("u32", "s32", "u64", "s64"):
            for mode in whole if f == "f32" else ("rzi",):
                if f != "bf16":
                    case(f"cvt.{mode}.{to}.{f} %d, %a;", f, to, to_integer(f, to, mode))
        for from_ in ("u16", "s16", "u32", "s32", "u64", "s64"):
            for mode in ("rn", "rz", "rm", "rp") if f in ("f32", "f64") else ("rn",):
                case(f"cvt.{mode}.{f}.{from_} %d, %a;", from_, f,
                     lambda a, f=f, k=from_, m=mode: FORMATS[f].encode(Fraction(as_int(a, k)), m))
    for to, from_ in (("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16")):
        case(f"cvt.{to}.{from_} %d, %a;", from_, to, lambda a, t=to, f=from_: FORMATS[t].encode(FORMATS[f].decode(a)))
    for to, from_ in (("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")):
        for mode in ("rn", "rz"):
            case(f"cvt.{mode}.{to}.{from_} %d, %a;", from_, to,
                 lambda a, t=to, f=from_, m=mode: FORMATS[t].encode(kept_sign(FORMATS[f].decode(a), FORMATS[t], m), m))
    for mode in ("rni", "rzi", "rmi", "rpi"):
        def round_float(a, mode=mode):
            v = F32.decode(a)
            if is_special(v) or number(v) == 0:
                return F32.encode(v)
            r = Fraction(whole[mode](v))
            return F32.encode("-0" if r == 0 and v < 0 else r)
        case(f"cvt.{mode}.f32.f32 %d, %a;", "f32", "f32", round_float)
    for to in ("f16", "bf16"):
        case(f"cvt.rn.{to}x2.f32 %d, %a, %b;", "f32 f32", "b32",
             lambda a, b, t=to: FORMATS[t].encode(kept_sign(F32.decode(a), FORMATS[t])) << 16 | FORMATS[t].encode(kept_sign(F32.decode(b), FORMATS[t])))
    for to in ("e4m3", "e5m2"):
        f = FORMATS[to]

        def small(v, f=f):
            return f.encode(kept_sign(v, f, "rn", True), "rn", True)
        case(f"cvt.rn.satfinite.{to}x2.f32 %d, %a, %b;", "f32 f32", "b16", lambda a, b, s=small: s(F32.decode(a)) << 8 | s(F32.decode(b)))
        case(f"cvt.rn.satfinite.{to}x2.f16x2 %d, %a;", "b32", "b16", lambda a, s=small: s(F16.decode(a >> 16)) << 8 | s(F16.decode(a & 0xffff)))
        case(f"cvt.rn.f16x2.{to}x2 %d, %a;", "b16", "b32", lambda a, f=f: F16.encode(f.decode(a >> 8)) << 16 | F16.encode(f.decode(a & 255)))


def kept_sign(value, f, mode="rn", saturate=False):
    """A negative value that rounds to zero becomes -0."""
    if is_special(value) or value == "-0" or value >= 0:
        return value
    return "-0" if f.encode(value, mode, saturate) & (1 << f.bits - 1) - 1 == 0 else value


def packed_cases():
    for kind in ("f16", "bf16"):
        f = FORMATS[kind]

        def both(name, kind=kind):
            scalar = next(c for c in CASES if c.text.startswith(f"{name}.rn.{kind} ")).reference

            def reference(*x):
                return scalar(*(v >> 16 for v in x)) << 16 | scalar(*(v & 0xffff for v in x))
            return reference
        for name, n in (("add", 2), ("mul", 2), ("sub", 2), ("fma", 3)):
            rest = ", ".join(["%a", "%b", "%c"][:n])
            case(f"{name}.rn.{kind}x2 %d, {rest};", " ".join(["b32"] * n), "b32", both(name))


def near(kind, name, f):
    """Approximations: the reference gives the value, the check allows two units in the last place."""
    def reference(a):
        v = F32.decode(a)
        x = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0}[v] if isinstance(v, str) else float(v)
        try:
            r = f(x)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None
        if math.isnan(r) or abs(r) > 3e38:
            return None
        return struct.unpack("<I", struct.pack("<f", r))[0]
    case(f"{name}.{kind} %d, %a;", "p32", "~f32", reference)


def approximations():
    near("f32", "rsqrt.approx", lambda x: 1 / math.sqrt(x))
    near("f32", "sqrt.approx", math.sqrt)
    near("f32", "rcp.approx", lambda x: 1 / x)
    near("f32", "ex2.approx", lambda x: 2 ** x)
    near("f32", "lg2.approx", math.log2)
    near("f32", "tanh.approx", math.tanh)
    near("f32", "sqrt.rn", math.sqrt)


integer_cases()
bit_cases()
for _kind in ("f16", "bf16", "f32", "f64"):
    float_arithmetic(_kind)
conversion_cases()
packed_cases()
approximations()


# ---- kernels

def width(kind):
    return {"n32": 4, "p32": 4, "~f32": 4, "bf16": 2}.get(kind) or int(kind.lstrip("usbf~")) // 8


def register(kind):
    """The type of a register that holds an operand."""
    if kind in ("f32", "p32", "~f32", "f64"):
        return f".f{8 * width(kind)}"
    return f".b{max(16, 8 * width(kind))}"


def kernel(k, c):
    """Thread t takes operand j from in[64 t + 16 j] and leaves the result in out[8 t]."""
    names = "%a %b %c".split()
    lines = [f".visible .entry form_{k}(.param .u64 in, .param .u64 out)", "{", ".reg .pred %p, %q; .reg .b64 %at, %to; .reg .b32 %t;"]
    lines += [f".reg {register(kind)} {name};" for name, kind in zip(names, c.operands)]
    lines += [f".reg {register(c.result)} %d;", "mov.u32 %t, %tid.x; ld.param.u64 %at, [in]; ld.param.u64 %to, [out];",
              "mad.wide.u32 %at, %t, 64, %at; mad.wide.u32 %to, %t, 8, %to;"]
    for j, (name, kind) in enumerate(zip(names, c.operands)):
        lines.append(f"ld.global.{'f' if register(kind)[1] == 'f' else 'b'}{8 * width(kind)} {name}, [%at+{16 * j}];")
    lines += [c.prepare or "", c.text, f"st.global.{'f' if register(c.result)[1] == 'f' else 'b'}{8 * width(c.result)} [%to], %d;", "ret;", "}"]
    return "\n".join(lines)


def operands(c, seed):
    """COUNT lists of bits, extremes first."""
    r = random.Random(seed)
    rows = []
    for row in range(COUNT):
        values = []
        for kind in c.operands:
            bits = 8 * width(kind)
            f = FORMATS.get(kind)
            if kind == "n32":
                values.append(r.choice((0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65)))
            elif kind == "p32":
                values.append(struct.unpack("<I", struct.pack("<f", r.uniform(0.01, 40)))[0])
            elif row % 2 == 0:
                extremes = [0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1]
                if f:
                    extremes += [f.largest, f.largest + 1, f.largest + 2, 1 << bits - 1 | f.largest + 1, 1 << f.mantissa, (1 << f.mantissa) - 1]
                values.append(r.choice(extremes))
            elif f and row % 4 == 1:  # values near one: sums, ties and whole numbers
                exponent = f.bias + r.randrange(-3, 8)
                values.append(r.getrandbits(1) << bits - 1 | exponent << f.mantissa | r.getrandbits(f.mantissa) & r.getrandbits(f.mantissa))
            else:
                values.append(r.getrandbits(bits))
        rows.append(values)
    return rows


def is_nan(bits, kind):
    return kind in FORMATS and FORMATS[kind].decode(bits) == "nan"


def same(got, want, kind):
    if kind == "~f32":
        return want is None or abs(got - want) <= 2
    return got == want or (is_nan(got, kind) and is_nan(want, kind))


def check(program):
    everything = [operands(c, k) for k, c in enumerate(CASES)]
    text = ""
    for k, rows in enumerate(everything):
        data = b"".join(b"".join(v.to_bytes(16, "little") for v in row).ljust(64, b"\0") for row in rows)
        text += f"form_{k} {COUNT} {8 * COUNT} {data.hex()}\n"
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    results = done.stdout.split()
    wrong = 0
    for k, (c, rows) in enumerate(zip(CASES, everything)):
        if k >= len(results):
            print(f"{c.text} stopped: {done.stderr}")
            wrong += 1
            break
        out = bytes.fromhex(results[k])
        bits = 8 * width(c.result)
        for t, row in enumerate(rows):
            got = int.from_bytes(out[8 * t:8 * t + bits // 8], "little")
            want = c.reference(*row)
            want = want if want is None else int(want) & (1 << bits) - 1
            if not same(got, want, c.result):
                print(f"{c.text} of {[hex(v) for v in row]}: {got:#x}, not {want:#x}")
                wrong += 1
                break
    print(f"{len(CASES)} forms, {wrong} wrong")
    return 1 if wrong else 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "write":
        with open(sys.argv[2], "w", encoding="utf-8") as f:
            f.write(".version 8.8\n.target sm_90\n.address_size 64\n" + "\n".join(kernel(k, c) for k, c in enumerate(CASES)) + "\n")
        return 0
    if len(sys.argv) >= 3 and sys.argv[1] == "check":
        return check(sys.argv[2])
    return __doc__


if __name__ == "__main__":
    sys.exit(main())
