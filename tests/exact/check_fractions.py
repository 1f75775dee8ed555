#!/usr/bin/env python3
"""check_fractions.py PROGRAM: exact sums that PROGRAM (exact_test) writes, against Python's fractions."""
import os
import subprocess
import sys
import tempfile
from fractions import Fraction

FORMATS = {"float": (32, 24), "double": (64, 53), "bfloat16": (16, 8), "half": (16, 11)}


def number(bits, width, digits):
    """A Fraction, or 'nan', '+inf', '-inf'."""
    special = (1 << (width - digits)) - 1
    field, fraction = bits >> (digits - 1) & special, bits & ((1 << (digits - 1)) - 1)
    sign = -1 if bits >> (width - 1) else 1
    if field == special:
        return "nan" if fraction else "+inf" if sign > 0 else "-inf"
    lowest = 2 - special // 2 - digits
    m = fraction if field == 0 else fraction + (1 << (digits - 1))
    return sign * m * Fraction(2) ** (max(field, 1) - 1 + lowest)


def rounded(x, width, digits):
    """The bits of the nearest number: found by bisection among all, which lie in the order of their bits."""
    special = (1 << (width - digits)) - 1
    infinite = special << (digits - 1)
    if isinstance(x, str):
        return {"nan": infinite | 1 << (digits - 2), "+inf": infinite, "-inf": infinite | 1 << (width - 1)}[x]
    sign, x = (1 << (width - 1) if x < 0 else 0), abs(x)
    value = lambda bits: number(bits, width, digits) if bits < infinite else Fraction(2) ** (special // 2 + 1)
    low, high = 0, infinite
    if x >= value(infinite):
        return sign | infinite
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) <= x else (low, middle)
    down, up = x - value(low), value(high) - x
    bits = low if down < up or (down == up and low % 2 == 0) else high
    return sign | bits if x else 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cases")
        subprocess.run([sys.argv[1], "[write]"], check=True, env={**os.environ, "COLLS_TEST_EXACT_CASES": path},
                       stdout=subprocess.DEVNULL)
        cases = wrong = 0
        with open(path, encoding="ascii") as lines:
            for line in lines:
                name, result, *addends = line.split()
                form = FORMATS[name]
                numbers = [number(int(a, 16), *form) for a in addends]
                words = {x for x in numbers if isinstance(x, str)}
                total = sum(numbers, Fraction(0)) if not words else words.pop() if len(words) == 1 else "nan"
                cases += 1
                if rounded(total, *form) != int(result, 16):
                    wrong += 1
                    print("wrong:", line[:200])
    print(f"{cases} sums, {wrong} wrong")
    return 1 if wrong or cases == 0 else 0


sys.exit(main())
