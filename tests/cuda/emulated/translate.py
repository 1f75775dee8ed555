#!/usr/bin/env python3
"""Translates PTX to C++ that runs on the machine of this folder (machine.hpp).

translate.py INPUT.ptx OUTPUT.cpp
An opcode form that is not known is an error that names it and its line.

Each PTX function becomes a C++ function of a thread_context and of the addresses of its parameters; each register a variable that holds its
bits; each instruction a statement. Functions of this file translate one group of opcodes each: they take an Instruction and return C++.
"""
import re
import sys

from ptx import BYTES, Instruction, Module, PtxError, Variable

# The C++ type of a value of a PTX type.
TYPES = {"b8": "u8", "u8": "u8", "s8": "s8", "b16": "u16", "u16": "u16", "s16": "s16", "f16": "f16", "bf16": "bf16", "b32": "u32", "u32": "u32",
         "s32": "s32", "f32": "f32", "b64": "u64", "u64": "u64", "s64": "s64", "f64": "f64", "b128": "u128", "pred": "bool", "f16x2": "u32",
         "bf16x2": "u32"}
# The C++ type of a register: it holds bits.
REGISTERS = {1: "u16", 2: "u16", 4: "u32", 8: "u64", 16: "u128"}
SPECIAL = {"%laneid": "t.lane()", "%warpid": "(t.index / 32)", "%clock": "u32(global_timer(t))", "%clock64": "global_timer(t)",
           "%globaltimer": "global_timer(t)", "%globaltimer_lo": "u32(global_timer(t))", "%globaltimer_hi": "u32(global_timer(t) >> 32)",
           "%lanemask_eq": "(1u << t.lane())", "%lanemask_lt": "((1u << t.lane()) - 1)", "%lanemask_le": "((2u << t.lane()) - 1)",
           "%lanemask_gt": "(0u - (2u << t.lane()))", "%lanemask_ge": "(0u - (1u << t.lane()))", "WARP_SZ": "32u", "%smid": "t.ctaid[0]",
           "%nsmid": "t.nctaid[0]", "%nwarpid": "((t.ntid[0] * t.ntid[1] * t.ntid[2] + 31) / 32)", "%dynamic_smem_size": "t.dynamic_shared_bytes()"}
for _name in ("tid", "ntid", "ctaid", "nctaid"):
    for _i, _axis in enumerate("xyz"):
        SPECIAL[f"%{_name}.{_axis}"] = f"t.{_name}[{_i}]"
for _axis in "xyz":  # a kernel that is launched without clusters runs in clusters of one block
    SPECIAL.update({f"%cluster_ctaid.{_axis}": "0u", f"%cluster_nctaid.{_axis}": "1u"})
# Where cooperative groups find the memory of a grid's barrier.
SPECIAL.update({"%envreg1": "u32(t.grid_workspace() >> 32)", "%envreg2": "u32(t.grid_workspace())"})
SPECIAL.update({"%cluster_ctarank": "0u", "%cluster_nctarank": "1u"})
SPECIAL["%mutant"] = "the_mutant"  # of mutate.py
ROUNDINGS = {"rn": "nearest", "rni": "nearest", "rz": "zero", "rzi": "zero", "rm": "down", "rmi": "down", "rp": "up", "rpi": "up"}
SCOPES = {"cta": "scope::block", "cluster": "scope::block", "gpu": "scope::device", "sys": "scope::system", "gl": "scope::device"}
SPACES = {"global": "global", "shared": "shared", "shared_cta": "shared", "shared_cluster": "shared", "local": "local", "param": "param",
          "param_entry": "param", "param_func": "param", "const": "constant"}


def cpp_name(register):
    return "v_" + re.sub(r"\W", "_", register.lstrip("%"))


def rounding(i):
    return "rounding::" + ROUNDINGS.get(i.first(*ROUNDINGS), "nearest")


class Translator:
    def __init__(self, module, name):
        self.module, self.name = module, name
        self.shared = {}  # offset of each static shared variable; None for those of dynamic size
        self.globals = {v.name: v for v in module.variables if v.space in ("global", "const")}
        self.functions = {f.name: f for f in module.functions}
        self.shared_end = 0
        for v in module.variables:
            if v.space == "shared":
                self.add_shared(v)
        self.scopes = []  # of the function at hand: names of registers and parameters to C++ text, inside out
        self.labels = {}

    def add_shared(self, v):
        if v.is_extern:
            self.shared[v.name] = None
            return
        self.shared_end = -(-self.shared_end // v.align) * v.align
        self.shared[v.name] = self.shared_end
        self.shared_end += v.bytes

    # ---- operands

    def find(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def register(self, i, name):
        found = self.find(name)
        if found is None or isinstance(found, Variable):
            raise PtxError(i.line, f"{name} is not a register: {i.text}")
        return found

    def address_of(self, i, name):
        """The address of a variable or parameter, in the address space it is declared in."""
        found = self.find(name)
        if isinstance(found, Variable):
            return f"reinterpret_cast<u64>({cpp_name(name)})"
        if name in self.shared:
            offset = self.shared[name]
            return "t.dynamic_shared()" if offset is None else f"(shared_window + {offset})"
        if name in self.globals:
            return f't.variable("{name}")'
        raise PtxError(i.line, f"{name} is not known: {i.text}")

    def value(self, i, operand, kind):
        """An operand read as PTX type `kind`."""
        type_ = TYPES[kind]
        if isinstance(operand, list):
            raise PtxError(i.line, f"vector operand where a scalar is expected: {i.text}")
        if operand in SPECIAL:
            return f"get<{type_}>({SPECIAL[operand]})"
        if m := re.match(r"0[fF]([0-9a-fA-F]{8})$", operand):
            return f"get<{type_}>(u32(0x{m.group(1)}))"
        if m := re.match(r"0[dD]([0-9a-fA-F]{16})$", operand):
            return f"get<{type_}>(u64(0x{m.group(1)}))"
        if m := re.match(r"(-?)(0[xX][0-9a-fA-F]+|\d+)U?$", operand):
            number = int(m.group(2), 8 if re.match(r"0\d", m.group(2)) else 0)
            number = (-number if m.group(1) else number) & (1 << 64) - 1
            if type_ in ("f32", "f64", "f16", "bf16"):
                return f"get<{type_}>(u64({number}ull))"
            return f"{type_}({number}ull)"
        if operand.startswith("!"):
            return f"!{self.value(i, operand[1:], kind)}"
        found = self.find(operand)
        if found is not None and not isinstance(found, Variable):
            return self.as_type(found, type_)
        if m := re.match(r"([$\w]+)([+-]\d+)?$", operand):
            return f"get<{type_}>({self.address_of(i, m.group(1))} + u64({m.group(2) or 0}))"
        raise PtxError(i.line, f"operand {operand} is not understood: {i.text}")

    def as_type(self, register, type_):
        """A register read as a C++ type: `get` only where a plain cast would not do."""
        of = self.register_types[register]
        if of == type_:
            return register
        if type_ in ("f32", "f64", "f16", "bf16") and of != "bool":
            return f"get<{type_}>({register})"
        return f"{type_}({register})"

    def put(self, i, register, text):
        if register == "_":
            return ""
        to = self.register(i, register)
        if text.startswith(self.register_types[to] + "(") or text in self.register_types and self.register_types[text] == self.register_types[to]:
            return f"{to} = {text};"
        return f"put({to}, {text});"

    def address(self, i, operand):
        """The address of `[base + offset]`."""
        m = re.match(r"\[\s*([%$\w.]+)\s*(?:\+?\s*(-?(?:0x)?[0-9a-fA-F]+))?\s*\]$", operand)
        if not m:
            raise PtxError(i.line, f"address {operand} is not understood: {i.text}")
        base, offset = m.group(1), int(m.group(2) or "0", 0)
        if re.match(r"\d", base):
            return str(int(base, 0) + offset)
        found = self.find(base)
        text = self.as_type(found, "u64") if found is not None and not isinstance(found, Variable) else self.address_of(i, base)
        return text if offset == 0 else f"{text} + u64({offset})"

    def parameter(self, i, operand, size):
        """The place of `[parameter + offset]` for an access of `size` bytes, checked here; None if the base is a register."""
        m = re.match(r"\[\s*([$\w]+)\s*(?:\+\s*(\d+))?\s*\]$", operand)
        variable = self.find(m.group(1)) if m else None
        if not isinstance(variable, Variable) or variable.space != "param":
            return None
        offset = int(m.group(2) or 0)
        if offset + size > variable.bytes:
            raise PtxError(i.line, f"byte {offset} is outside of parameter {variable.name}: {i.text}")
        return f"{cpp_name(variable.name)} + {offset}"

    # ---- memory

    def space(self, i):
        name = i.first(*SPACES)
        return "space::" + (SPACES[name] if name else "generic")

    def vector(self, i):
        return int((i.first("v2", "v4", "v8") or "v1")[1:])

    def strength(self, i):
        """For strong accesses, their semantics and scope; None for weak ones."""
        if i.has("volatile", "mmio"):
            return "semantics::relaxed, scope::system"
        how = i.first("relaxed", "acquire", "release", "acq_rel")
        if how is None:
            return None
        how = "both" if how == "acq_rel" else how
        return f"semantics::{how}, {SCOPES[i.first(*SCOPES) or 'gpu']}"

    def only(self, i, *allowed):
        """An error if the opcode has a part that is not named here."""
        for name in i.names[1:]:
            if name not in allowed and name not in TYPES:
                raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")

    MEMORY_PARTS = (*SPACES, *SCOPES, "v1", "v2", "v4", "v8", "volatile", "mmio", "relaxed", "acquire", "release", "acq_rel", "weak", "nc", "ca",
                    "cg", "cs", "lu", "cv", "wb", "wt", "L1_no_allocate", "L1_evict_last", "L1_evict_first", "L1_evict_normal",
                    "L1_evict_unchanged", "L2_64B", "L2_128B", "L2_256B", "L2_evict_last", "L2_evict_first", "L2_evict_normal", "L2_cache_hint")

    def load(self, i):
        self.only(i, *self.MEMORY_PARTS)
        kind, n = i.names[-1], self.vector(i)
        into = i.operands[0] if isinstance(i.operands[0], list) else [i.operands[0]]
        place = self.parameter(i, i.operands[1], n * BYTES[kind]) if i.has("param", "param_entry", "param_func") else None
        strong = self.strength(i)
        function, arguments = ("load_read_only", "t") if i.has("nc") else ("load", f"t, {self.space(i)}")
        if n == 1 and not strong and into[0] != "_":
            call = f"{TYPES[kind]}(parameter<{TYPES[kind]}>({place}))" if place else (
                f"{TYPES[kind]}({function}<{TYPES[kind]}>({arguments}, {self.address(i, i.operands[1])}, {i.line}))")
            if TYPES[kind] in ("f32", "f64"):
                call = call.replace(TYPES[kind], TYPES[f"b{8 * BYTES[kind]}"])
            return self.put(i, into[0], call)
        if place:
            read = f"load_parameter({place}, w);"
        elif strong:
            read = f"load_strong(t, {self.space(i)}, {self.address(i, i.operands[1])}, w, {strong}, {i.line});"
        else:
            read = f"{function}({arguments}, {self.address(i, i.operands[1])}, w, {i.line});"
        return f"{{ {TYPES[kind]} w[{n}]; {read} " + " ".join(self.put(i, r, f"w[{k}]") for k, r in enumerate(into)) + " }"

    def store(self, i):
        self.only(i, *self.MEMORY_PARTS)
        kind, n = i.names[-1], self.vector(i)
        values = i.operands[1] if isinstance(i.operands[1], list) else [i.operands[1]]
        place = self.parameter(i, i.operands[0], n * BYTES[kind]) if i.has("param", "param_func") else None
        strong = self.strength(i)
        if n == 1 and not strong:
            bits = TYPES[f"b{8 * BYTES[kind]}"] if kind in ("f32", "f64") else TYPES[kind]
            value = self.value(i, values[0], f"b{8 * BYTES[kind]}" if kind in ("f32", "f64") else kind)
            if place:
                return f"parameter<{bits}>({place}) = {value};"
            return f"store<{bits}>(t, {self.space(i)}, {self.address(i, i.operands[0])}, {value}, {i.line});"
        if place:
            write = f"store_parameter({place}, w);"
        elif strong:
            write = f"store_strong(t, {self.space(i)}, {self.address(i, i.operands[0])}, w, {strong}, {i.line});"
        else:
            write = f"store(t, {self.space(i)}, {self.address(i, i.operands[0])}, w, {i.line});"
        return f"{{ const {TYPES[kind]} w[{n}] = {{{', '.join(self.value(i, v, kind) for v in values)}}}; {write} }}"

    def update(self, i):
        """atom and red."""
        operations = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
        self.only(i, *SPACES, *SCOPES, *operations, "relaxed", "acquire", "release", "acq_rel", "noftz")
        kind, is_red, operation = i.names[-1], i.names[0] == "red", i.first(*operations)
        if operation is None or kind == "b128":
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        operands = ["_"] + i.operands if is_red else i.operands
        name = operation + "_" if operation in ("and", "or", "xor") else operation
        if kind in ("f16x2", "bf16x2"):
            if operation != "add":
                raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
            name, type_ = "pair", f"{kind[:-2]}, atomic::add<{kind[:-2]}>"
        else:
            type_ = TYPES[kind]
        bits = f"b{8 * BYTES[kind]}"
        strong = self.strength(i) or f"semantics::relaxed, {SCOPES[i.first(*SCOPES) or 'gpu']}"
        second = self.value(i, operands[3], bits) if operation == "cas" else "0"
        call = (f"t.update({self.space(i)}, {self.address(i, operands[1])}, {BYTES[kind]}, {strong}, &atomic::{name}<{type_}>, "
                f"{self.value(i, operands[2], bits)}, {second}, {i.line})")
        return call + ";" if operands[0] == "_" else self.put(i, operands[0], f"get<{TYPES[bits]}>({call})")

    def multicast(self, i):
        """multimem.ld_reduce, multimem.st, multimem.red: the same offset of each copy, an element at a time."""
        operations = ("add", "min", "max", "and", "or", "xor")
        self.only(i, *SPACES, *SCOPES, *operations, "ld_reduce", "st", "red", "v2", "v4", "v8", "weak", "relaxed", "release", "acquire", "acc_f32",
                  "acc_f16")
        kind, operation = i.names[-1], i.first(*operations)
        strong = self.strength(i) or "semantics::relaxed, scope::system"
        reads = i.has("ld_reduce")
        values = i.operands[0 if reads else 1]
        values = values if isinstance(values, list) else [values]
        bits = f"b{8 * BYTES[kind]}"
        if operation:
            name = operation + "_" if operation in ("and", "or", "xor") else operation
            if kind in ("f16x2", "bf16x2"):
                function = f"&atomic::pair<{kind[:-2]}, atomic::{name}<{kind[:-2]}>>"
            else:
                function = f"&atomic::{name}<{TYPES[kind]}>"
        address = self.address(i, i.operands[1 if reads else 0])
        lines = []
        for k, v in enumerate(values):
            at = f"{address} + {k * BYTES[kind]}, {BYTES[kind]}"
            if reads:
                lines.append(self.put(i, v, f"get<{TYPES[bits]}>(t.load_multicast({at}, {strong}, {function}, {i.line}))"))
            elif operation:
                lines.append(f"t.update_multicast({at}, {strong}, {function}, {self.value(i, v, bits)}, {i.line});")
            else:
                lines.append(f"t.store_multicast({at}, {strong}, {self.value(i, v, bits)}, {i.line});")
        return "{ " + " ".join(lines) + " }"

    def fence(self, i):
        if i.names[0] == "membar":
            self.only(i, *SCOPES)
            return f"t.fence({SCOPES[i.first(*SCOPES)]}, true, {i.line});"
        if i.has("proxy", "mbarrier_init"):
            return ";"  # copies of other proxies are made in the order of the thread's own accesses
        self.only(i, *SCOPES, "sc", "acq_rel")
        return f"t.fence({SCOPES[i.first(*SCOPES)]}, {'true' if i.has('sc') or not i.has('acq_rel') else 'false'}, {i.line});"

    def copy_async(self, i):
        if i.opcode == "cp.async.commit_group":
            return "t.commit_copies();"
        if i.opcode == "cp.async.wait_all":
            return "t.wait_for_copies(-1);"
        if i.opcode == "cp.async.wait_group":
            return f"t.wait_for_copies({i.operands[0]});"
        if i.has("bulk", "mbarrier"):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        size = i.operands[2]
        given = self.value(i, i.operands[3], "u32") if len(i.operands) > 3 and not i.has("L2_cache_hint") else size
        return f"t.copy_async({self.address(i, i.operands[0])}, {self.address(i, i.operands[1])}, {size}, {given}, {i.line});"

    # ---- moves

    def move(self, i):
        kind, to, from_ = i.names[-1], i.operands[0], i.operands[1]
        if isinstance(to, list):
            part = 8 * BYTES[kind] // len(to)
            return f"{{ const auto whole = {self.value(i, from_, kind)}; " + " ".join(
                self.put(i, r, f"u{part}(whole >> {part * k})") for k, r in enumerate(to)) + " }"
        if isinstance(from_, list):
            part = 8 * BYTES[kind] // len(from_)
            type_ = TYPES[kind]
            return self.put(i, to, f"{type_}(" + " | ".join(
                f"{type_}({type_}({self.value(i, r, f'b{part}')}) << {part * k})" for k, r in enumerate(from_)) + ")")
        return self.put(i, to, self.value(i, from_, kind))

    def convert_address(self, i):
        """cvta: addresses of all spaces but shared are the same in the generic space."""
        name = i.first(*SPACES)
        how = "from_generic" if i.has("to") else "to_generic"
        return self.put(i, i.operands[0], f"t.{how}(space::{SPACES[name]}, {self.value(i, i.operands[1], i.names[-1])})")

    def is_space(self, i):
        """isspacep"""
        return self.put(i, i.operands[0], f"t.is_in({self.space(i)}, {self.value(i, i.operands[1], 'u64')})")

    # ---- arithmetic

    def float_result(self, i, text, kind):
        """Adds what .sat, .ftz and .relu ask for."""
        if i.has("sat"):
            text = f"saturated({text})"
        if i.has("relu"):
            text = f"extreme({text}, rounded<{TYPES[kind]}>(0.0), true, true)"
        return f"flushed({text})" if i.has("ftz") and kind == "f32" else text

    def float_operand(self, i, operand, kind):
        text = self.value(i, operand, kind)
        return f"flushed({text})" if i.has("ftz") and kind == "f32" else text

    def pairwise(self, i, function):
        """Applies `function`, C++ text with %s for its operands, to both halves of packed operands."""
        kind = i.names[-1][:-2]
        operands = [self.value(i, o, "b32") for o in i.operands[1:]]
        halves = [function % tuple(f"get<{kind}>(u16({o} >> {shift}))" for o in operands) for shift in (16, 0)]
        if i.has("relu"):
            halves = [f"extreme({h}, {kind}{{0}}, true, true)" for h in halves]
        if i.has("sat"):
            halves = [f"saturated({h})" for h in halves]
        return self.put(i, i.operands[0], "packed(" + ", ".join(f"({h}).bits" for h in halves) + ", 16)")

    def sum_or_product(self, i):
        """add, sub, mul, mad, fma, div, rem, min, max of integers and floats."""
        kind, name = i.names[-1], i.names[0]
        self.only(i, *ROUNDINGS, "lo", "hi", "wide", "ftz", "sat", "NaN", "approx", "full", "relu", "xorsign")
        if i.has("cc", "xorsign") or (kind in ("f64", "f32", "f16", "bf16") and i.has("rm", "rp")):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        if kind in ("f16x2", "bf16x2"):
            half = kind[:-2]
            form = {"add": f"rounded<{half}>(value_of(%s) + value_of(%s))", "sub": f"rounded<{half}>(value_of(%s) - value_of(%s))",
                    "mul": f"rounded<{half}>(value_of(%s) * value_of(%s))", "fma": "fused(%s, %s, %s)",
                    "min": f"extreme(%s, %s, false, {str(i.has('NaN')).lower()})", "max": f"extreme(%s, %s, true, {str(i.has('NaN')).lower()})"}
            return self.pairwise(i, form[name])
        if kind in ("f16", "bf16", "f32", "f64"):
            return self.put(i, i.operands[0], self.float_result(i, self.float_operation(i, name, kind), kind))
        return self.put(i, i.operands[0], self.integer_operation(i, name, kind))

    def float_operation(self, i, name, kind):
        a, b, *c = [self.float_operand(i, o, kind) for o in i.operands[1:]]
        type_ = TYPES[kind]
        if name in ("min", "max"):
            if c:
                raise PtxError(i.line, f"{i.opcode} with three operands is not known: {i.text}")
            return f"extreme({a}, {b}, {'true' if name == 'max' else 'false'}, {str(i.has('NaN')).lower()})"
        if i.has("rz"):
            if kind != "f32" or name not in ("add", "sub", "mul", "fma", "mad"):
                raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
            return f"toward_zero::{name}({', '.join([a, b, *c])})"
        if name in ("fma", "mad"):
            return f"fused({a}, {b}, {c[0]})"
        sign = {"add": "+", "sub": "-", "mul": "*", "div": "/"}[name]
        if kind in ("f16", "bf16"):
            return f"rounded<{type_}>(value_of({a}) {sign} value_of({b}))"
        return f"{type_}({a} {sign} {b})"

    def integer_operation(self, i, name, kind):
        a, b, *c = [self.value(i, o, kind) for o in i.operands[1:3]]
        type_ = TYPES[kind]
        if name in ("min", "max"):
            return f"extreme<{type_}>({a}, {b}, {'true' if name == 'max' else 'false'})"
        if name in ("div", "rem"):
            return f"{'divide' if name == 'div' else 'remainder'}<{type_}>({a}, {b})"
        if i.has("sat"):
            if kind != "s32" or name not in ("add", "sub"):
                raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
            return f"to_other_integer<s32>(s64({a}) {'+' if name == 'add' else '-'} s64({b}), true)"
        unsigned = "u" + type_[1:]
        if name in ("add", "sub"):  # the same bits for signed numbers, without overflow
            a, b = (self.value(i, o, unsigned) for o in i.operands[1:3])
            return f"{unsigned}({a} {'+' if name == 'add' else '-'} {b})"
        if i.has("wide"):
            result, sum_kind = f"mul_wide<{type_}>({a}, {b})", kind[0] + str(16 * BYTES[kind])
        elif i.has("hi"):
            result, sum_kind = f"mul_hi<{type_}>({a}, {b})", kind
        else:
            result, sum_kind = f"{unsigned}(u64({a}) * u64({b}))", kind
        if name == "mad":
            sum_kind = "u" + sum_kind[1:]
            result = f"{sum_kind}({sum_kind}({result}) + {self.value(i, i.operands[3], sum_kind)})"
        return result

    def one_operand(self, i):
        """neg, abs, not, popc, clz, brev, bfind and the functions of one float."""
        kind, name = i.names[-1], i.names[0]
        type_ = TYPES[kind]
        if kind in ("f16x2", "bf16x2") and name in ("neg", "abs"):
            operation = "^ 0x80008000u" if name == "neg" else "& 0x7fff7fffu"
            return self.put(i, i.operands[0], f"{self.value(i, i.operands[1], 'b32')} {operation}")
        if kind in ("f16", "bf16") and name in ("neg", "abs"):
            operation = "^ 0x8000" if name == "neg" else "& 0x7fff"
            return self.put(i, i.operands[0], f"u16({self.value(i, i.operands[1], 'b16')} {operation})")
        a = self.float_operand(i, i.operands[1], kind)
        if kind in ("f32", "f64"):
            functions = {"neg": "-%s", "abs": "std::fabs(%s)", "sqrt": "std::sqrt(%s)", "rcp": "1 / %s", "rsqrt": "1 / std::sqrt(f64(%s))",
                         "ex2": "std::exp2(f64(%s))", "lg2": "std::log2(f64(%s))", "sin": "std::sin(f64(%s))", "cos": "std::cos(f64(%s))",
                         "tanh": "std::tanh(f64(%s))"}
            self.only(i, "approx", "rn", "ftz")
            if name in functions:
                return self.put(i, i.operands[0], self.float_result(i, f"{type_}({functions[name] % a})", kind))
        unsigned = f"unsigned_of<{type_}>"
        functions = {"neg": f"{type_}(0 - {unsigned}({a}))", "abs": f"{type_}({a} < 0 ? 0 - {unsigned}({a}) : {unsigned}({a}))",
                     "not": f"!{a}" if kind == "pred" else f"{type_}(~{a})", "popc": f"u32(std::popcount({a}))",
                     "clz": f"u32(std::countl_zero({a}))", "brev": f"reversed_bits({a})",
                     "bfind": f"highest_bit<{type_}>({a}, {str(i.has('shiftamt')).lower()})"}
        self.only(i, "shiftamt")
        if name not in functions or kind[0] == "f":
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        return self.put(i, i.operands[0], functions[name])

    def bits(self, i):
        """and, or, xor, shifts, fields, permutations."""
        kind, name = i.names[-1], i.names[0]
        type_, o = TYPES.get(kind), i.operands
        read = self.value
        if name in ("and", "or", "xor"):
            sign = {"and": "&", "or": "|", "xor": "^"}[name]
            text = f"{type_}({read(i, o[1], kind)} {sign} {read(i, o[2], kind)})"
        elif name in ("shl", "shr"):
            text = f"shift_{'left' if name == 'shl' else 'right'}<{type_}>({read(i, o[1], kind)}, {read(i, o[2], 'u32')})"
        elif name == "shf":
            self.only(i, "l", "r", "wrap", "clamp")
            flags = f"{str(i.has('l')).lower()}, {str(i.has('wrap')).lower()}"
            text = f"funnel({flags}, {read(i, o[1], 'b32')}, {read(i, o[2], 'b32')}, {read(i, o[3], 'u32')})"
        elif name == "bfe":
            text = f"bit_field<{type_}>({read(i, o[1], kind)}, {read(i, o[2], 'u32')}, {read(i, o[3], 'u32')})"
        elif name == "bfi":
            text = f"insert_bits<{type_}>({read(i, o[1], kind)}, {read(i, o[2], kind)}, {read(i, o[3], 'u32')}, {read(i, o[4], 'u32')})"
        elif name == "prmt":
            if i.opcode != "prmt.b32":
                raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
            text = f"permuted({read(i, o[1], 'b32')}, {read(i, o[2], 'b32')}, {read(i, o[3], 'b32')})"
        else:
            text = f"logic({read(i, o[1], 'b32')}, {read(i, o[2], 'b32')}, {read(i, o[3], 'b32')}, {read(i, o[4], 'u32')})"
        return self.put(i, o[0], text)

    COMPARISONS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}

    def comparison(self, i, kind):
        names = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
        how = i.first(*names)
        self.only(i, *names, "and", "or", "xor", "ftz")
        if how is None:
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        a, b = (self.float_operand(i, o, kind) for o in i.operands[1:3])
        signs = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
        if kind[0] in "usb" and kind not in ("bf16", "bf16x2"):
            return f"{a} {signs[self.COMPARISONS.get(how, how)]} {b}"
        return f"compare<{TYPES[kind]}>(comparison::{self.COMPARISONS.get(how, how)}, {a}, {b})"

    def set_predicate(self, i):
        """setp: also `p|q`, where q is the opposite, and a combination with a third predicate."""
        found = self.comparison(i, i.names[-1])
        both = i.operands[0].split("|")
        combine = i.first("and", "or", "xor")
        sign = {"and": "&&", "or": "||", "xor": "!=", None: ""}[combine]
        third = f" {sign} {self.value(i, i.operands[3], 'pred')}" if combine else ""
        if len(both) == 1 and not combine:
            return self.put(i, both[0].strip(), f"bool({found})")
        text = f"{{ const bool is = {found}; " + self.put(i, both[0].strip(), f"(is{third})")
        if len(both) > 1:
            text += " " + self.put(i, both[1].strip(), f"(!is{third})")
        return text + " }"

    def set_value(self, i):
        """set: ones, or 1.0, where the comparison holds."""
        if i.names[-2] not in ("u32", "s32", "f32") or i.has("and", "or", "xor"):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        yes, no = ("1.0f", "0.0f") if i.names[-2] == "f32" else ("~0u", "0u")
        return self.put(i, i.operands[0], f"{self.comparison(i, i.names[-1])} ? {yes} : {no}")

    def select(self, i):
        kind = i.names[-1]
        a, b = (self.value(i, o, kind) for o in i.operands[1:3])
        if i.names[0] == "selp":
            test = self.value(i, i.operands[3], "pred")
        else:
            test = f"{self.value(i, i.operands[3], i.names[-1])} >= 0"
        return self.put(i, i.operands[0], f"{test} ? {a} : {b}")

    # ---- conversions

    SMALL = {"f16": "binary16", "bf16": "bfloat16", "e4m3": "e4m3", "e5m2": "e5m2"}

    def convert(self, i):
        """cvt"""
        to, from_ = i.names[-2], i.names[-1]
        self.only(i, *ROUNDINGS, "sat", "satfinite", "ftz", "relu", "e4m3x2", "e5m2x2")
        if to.endswith("x2") or from_.endswith("x2"):
            return self.convert_pair(i, to, from_)
        if to not in TYPES or from_ not in TYPES or i.has("satfinite"):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        a = self.float_operand(i, i.operands[1], from_)
        is_float = [k in ("f16", "bf16", "f32", "f64") for k in (to, from_)]
        if is_float == [False, False]:
            text = f"to_other_integer<{TYPES[to]}>({a}, {str(i.has('sat')).lower()})"
        elif is_float == [False, True]:
            text = f"to_integer<{TYPES[to]}>({a}, {rounding(i)})"
        elif is_float == [True, False]:
            text = self.float_result(i, f"to_float<{TYPES[to]}>({a}, {rounding(i)})", to)
        else:
            if i.has("rni", "rzi", "rmi", "rpi"):
                a = f"whole(value_of({a}), {rounding(i)})"
                text = f"rounded<{TYPES[to]}>({a})"
            else:
                text = f"rounded<{TYPES[to]}>(value_of({a}), {rounding(i)})"
            text = self.float_result(i, text, to)
        return self.put(i, i.operands[0], text)

    def convert_pair(self, i, to, from_):
        """Conversions of two values at a time: the first operand becomes the upper half."""
        into, out_of = to.removesuffix("x2"), from_.removesuffix("x2")
        if into not in self.SMALL or not (from_ == "f32" or (from_.endswith("x2") and out_of in self.SMALL)):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        if from_ == "f32":
            values = [f"f64({self.float_operand(i, o, 'f32')})" for o in i.operands[1:3]]
        else:
            bits = 8 if out_of in ("e4m3", "e5m2") else 16
            whole = self.value(i, i.operands[1], f"b{2 * bits}")
            values = [f"decode(u32({whole}) >> {shift} & {(1 << bits) - 1}, {self.SMALL[out_of]})" for shift in (bits, 0)]
        if i.has("relu"):
            values = [f"({v} < 0 ? 0.0 : {v})" for v in values]
        bits = 8 if into in ("e4m3", "e5m2") else 16
        if bits == 8 and not i.has("satfinite"):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        saturates = str(i.has("satfinite")).lower()
        halves = ", ".join(f"encode({v}, {self.SMALL[into]}, {rounding(i)}, {saturates})" for v in values)
        return self.put(i, i.operands[0], f"u{2 * bits}(packed({halves}, {bits}))")

    # ---- threads together

    def barrier(self, i):
        if i.has("warp"):
            return f"t.warp_barrier({self.value(i, i.operands[0], 'u32')}, {i.line});"
        self.only(i, "sync", "red", "arrive", "popc", "and", "or", "cta", "aligned")
        if i.has("red"):
            how = {"popc": "count", "and": "all", "or": "any"}[i.first("popc", "and", "or")]
            count = self.value(i, i.operands[2], "u32") if len(i.operands) > 3 else "0"
            call = (f"t.barrier({self.value(i, i.operands[1], 'u32')}, {count}, true, reduction::{how}, "
                    f"{self.value(i, i.operands[-1], 'pred')}, {i.line})")
            return self.put(i, i.operands[0], call if how == "count" else f"{call} != 0")
        count = self.value(i, i.operands[1], "u32") if len(i.operands) > 1 else "0"
        waits = str(not i.has("arrive")).lower()
        return f"t.barrier({self.value(i, i.operands[0], 'u32')}, {count}, {waits}, reduction::none, false, {i.line});"

    def shuffle(self, i):
        self.only(i, "sync", "up", "down", "bfly", "idx")
        if not i.has("sync"):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        mode = {"up": "up", "down": "down", "bfly": "butterfly", "idx": "index"}[i.first("up", "down", "bfly", "idx")]
        both = [r.strip() for r in i.operands[0].split("|")]
        values = ", ".join(self.value(i, o, "b32") for o in i.operands[1:])
        text = f"{{ bool inside; {self.put(i, both[0], f't.shuffle(shuffle_mode::{mode}, {values}, inside, {i.line})')}"
        return text + (" " + self.put(i, both[1], "inside") if len(both) > 1 else "") + " }"

    def vote(self, i):
        self.only(i, "sync", "all", "any", "uni", "ballot")
        mode = {"all": "all", "any": "any", "uni": "uniform", "ballot": "ballot"}[i.first("all", "any", "uni", "ballot")]
        call = f"t.vote(vote_mode::{mode}, {self.value(i, i.operands[1], 'pred')}, {self.value(i, i.operands[2], 'u32')}, {i.line})"
        return self.put(i, i.operands[0], call if mode == "ballot" else f"{call} != 0")

    def match(self, i):
        self.only(i, "sync", "any", "all")
        both = [r.strip() for r in i.operands[0].split("|")]
        value, bits = self.value(i, i.operands[1], i.names[-1]), 8 * BYTES[i.names[-1]]
        call = f"t.match({value}, {bits}, {str(i.has('all')).lower()}, {self.value(i, i.operands[2], 'u32')}, same, {i.line})"
        return f"{{ bool same; {self.put(i, both[0], call)}" + (" " + self.put(i, both[1], "same") if len(both) > 1 else "") + " }"

    def reduce(self, i):
        """redux"""
        operation, type_ = i.first("add", "min", "max", "and", "or", "xor"), TYPES[i.names[-1]]
        if operation is None or i.names[-1] not in ("u32", "s32", "b32"):
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}")
        body = {"add": "a + b", "and": "a & b", "or": "a | b", "xor": "a ^ b", "min": f"u32(std::min<{type_}>({type_}(a), {type_}(b)))",
                "max": f"u32(std::max<{type_}>({type_}(a), {type_}(b)))"}[operation]
        return self.put(i, i.operands[0], f"t.reduce({self.value(i, i.operands[1], 'b32')}, [](u32 a, u32 b) {{ return u32({body}); }}, "
                        f"{self.value(i, i.operands[2], 'u32')}, {i.line})")

    def elect(self, i):
        both = [r.strip() for r in i.operands[0].split("|")]
        leader = self.put(i, both[0], "leader")
        return f"{{ u32 leader; {self.put(i, both[1], f't.elect({self.value(i, i.operands[1], chr(117) + str(32))}, leader, {i.line})')} {leader} }}"

    # ---- control

    def branch(self, i):
        return f"goto {self.label(i, i.operands[0])};"

    def label(self, i, name):
        for scope in reversed(self.scopes):
            if ("label", name) in scope:
                return scope[("label", name)]
        raise PtxError(i.line, f"label {name} is not known: {i.text}")

    def call(self, i):
        m = re.match(r"call(?:\.uni)?\s*(?:\(([^)]*)\)\s*,)?\s*([$\w]+)\s*(?:,\s*\(([^)]*)\))?$", i.text)
        if not m or m.group(2) not in self.functions:
            raise PtxError(i.line, f"this call is not known: {i.text}")
        names = [n.strip() for part in (m.group(1), m.group(3)) if part for n in part.split(",") if n.strip()]
        arguments = "".join(", " + cpp_name(n) for n in names)
        return f"f_{m.group(2)}(t{arguments});"

    def other(self, i):
        """Instructions of one form."""
        name = i.opcode
        if name in ("ret", "ret.uni"):
            return "return;"
        if name == "exit":
            return "t.exit();"
        if name == "trap":
            return f't.fail({i.line}, "trap");'
        if name == "nanosleep.u32":
            return "t.yield(true);"
        if name == "activemask.b32":  # other lanes may have diverged: only the own one is sure to be active
            return self.put(i, i.operands[0], "(1u << t.lane())")
        if re.match(r"(discard|prefetch|prefetchu|applypriority|griddepcontrol|pmevent)\b", name):
            return ";"
        raise PtxError(i.line, f"{name} is not known: {i.text}")

    GROUPS = {"ld": load, "ldu": load, "st": store, "atom": update, "red": update, "multimem": multicast, "fence": fence, "membar": fence, "cp": copy_async, "mov": move,
              "cvta": convert_address, "isspacep": is_space, "setp": set_predicate, "set": set_value, "selp": select, "slct": select, "cvt": convert,
              "bar": barrier, "barrier": barrier, "shfl": shuffle, "vote": vote, "match": match, "redux": reduce, "elect": elect, "bra": branch,
              "call": call}
    GROUPS.update(dict.fromkeys(("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max"), sum_or_product))
    GROUPS.update(dict.fromkeys(("neg", "abs", "not", "popc", "clz", "brev", "bfind", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"),
                                one_operand))
    GROUPS.update(dict.fromkeys(("and", "or", "xor", "shl", "shr", "shf", "bfe", "bfi", "prmt", "lop3"), bits))

    def instruction(self, statement):
        i = Instruction(statement.line, statement.text)
        try:
            text = self.GROUPS.get(i.names[0], Translator.other)(self, i)
        except (KeyError, IndexError, TypeError, AttributeError) as e:
            raise PtxError(i.line, f"{i.opcode} is not known: {i.text}") from e
        if i.guard:
            test = self.value(i, i.guard, "pred")
            text = f"if ({'!' if i.guard_is_negated else ''}{test}) {text if text.startswith('{') else '{ ' + text + ' }'}"
        return text

    # ---- functions

    def declare(self, s, depth):
        """Registers, local memory and parameters of calls."""
        if m := re.match(r"\.reg\s+\.(\w+)\s+(.*)$", s.text):
            type_ = "bool" if m.group(1) == "pred" else REGISTERS[BYTES[m.group(1)]]
            names = []
            for name in split_names(m.group(2)):
                if r := re.match(r"(%?[\w$]+)<(\d+)>$", name):
                    names += [f"{r.group(1)}{k}" for k in range(int(r.group(2)))]
                else:
                    names.append(name)
            unique = f"_{s.line}" if depth > 1 else ""
            self.scopes[-1].update({n: cpp_name(n) + unique for n in names})
            self.registers += [f"{type_} {cpp_name(n)}{unique}" for n in names]
            self.register_types.update({cpp_name(n) + unique: type_ for n in names})
            return ""
        if s.text.startswith((".local", ".param")):
            v = Variable(s.line, s.text)
            self.scopes[-1][v.name] = v
            text = f"alignas({max(v.align, 16)}) unsigned char {cpp_name(v.name)}[{v.bytes}];"
            if v.space == "local":
                self.frames.append(f"    {text}\n    const local_frame at_{cpp_name(v.name)}(t, {cpp_name(v.name)}, {v.bytes}, true);")
                return ""
            return text
        if s.text.startswith(".shared"):
            v = Variable(s.line, s.text)
            self.add_shared(v)
            return ""
        if s.text.startswith((".pragma", ".loc", ".file")):
            return ""
        raise PtxError(s.line, f"{s.text.split()[0]} is not known: {s.text}")

    def body(self, f):
        """The C++ statements of a function."""
        self.scopes = [{v.name: v for v in f.results + f.parameters}]
        self.registers, self.frames, self.register_types = [], [], {}
        lines, depth = [], 1
        self.enter_scope(f.body, 0)
        for k, s in enumerate(f.body):
            if s.kind == "open":
                depth += 1
                self.enter_scope(f.body, k + 1)
                lines.append("{")
            elif s.kind == "close":
                depth -= 1
                self.scopes.pop()
                lines.append("}")
            elif s.kind == "label":
                lines.append(f"{self.scopes[-1][('label', s.text)]}:;")
            elif s.kind == "directive":
                lines.append(self.declare(s, depth))
            else:
                lines.append(self.instruction(s))
        for v in f.results + f.parameters:
            if not f.is_entry and any(re.search(rf"(?<!\[){re.escape(v.name)}\b", s.text) for s in f.body if s.text.startswith("mov")):
                self.frames.append(f"    const local_frame at_{cpp_name(v.name)}(t, {cpp_name(v.name)}, {v.bytes}, false);")
        return self.frames + [f"    {r} = 0;" for r in self.registers] + ["    " + text for text in lines if text]

    def enter_scope(self, body, begin):
        """A new scope whose labels are those up to the brace that closes it: their names are unique in C++."""
        scope, depth = {}, 0
        for s in body[begin:]:
            depth += (s.kind == "open") - (s.kind == "close")
            if depth < 0:
                break
            if s.kind == "label" and depth == 0:
                scope[("label", s.text)] = f"at_{re.sub(r'[^A-Za-z0-9]', '_', s.text)}_{s.line}"
        self.scopes.append(scope)

    def signature(self, f):
        parameters = "".join(f", unsigned char* {cpp_name(v.name)}" for v in f.results + f.parameters)
        return f"static void f_{f.name}(thread_context& t{parameters})"

    def shared_bytes(self, f, seen=None):
        """Static shared memory of a kernel: up to the last variable that it, or a function it calls, uses."""
        seen = set() if seen is None else seen
        seen.add(f.name)
        most = 0
        for s in f.body:
            for word in set(re.findall(r"[$\w]+", s.text)):
                if self.shared.get(word) is not None:
                    v = next(v for v in self.shared_variables if v.name == word)
                    most = max(most, self.shared[word] + v.bytes)
                elif word in self.functions and word not in seen:
                    most = max(most, self.shared_bytes(self.functions[word], seen))
        return most

    def translation(self):
        """The C++ source of the module."""
        out = ['#include "machine.hpp"', "", "#include <cstdlib>", "", "using namespace emulated;", "namespace {", ""]
        if any("%mutant" in s.text for f in self.module.functions for s in f.body):
            out += ['const u32 the_mutant = [] { const char* n = std::getenv("EMULATED_MUTANT"); return n ? u32(std::atoi(n)) : 0u; }();', ""]
        defined = {f.name: f for f in self.module.functions if f.has_body}
        out += [self.signature(f) + ";" for f in defined.values()]
        bodies = []
        for f in defined.values():
            bodies += ["", self.signature(f) + " {", *self.body(f), "}"]
        self.functions.update(defined)
        self.shared_variables = [v for v in self.module.variables if v.space == "shared"]
        for f in defined.values():
            self.shared_variables += [Variable(s.line, s.text) for s in f.body if s.kind == "directive" and s.text.startswith(".shared")]
        out += bodies + [""]
        out += self.tables([f for f in defined.values() if f.is_entry])
        return "\n".join(out) + "\n"

    def tables(self, entries):
        out = [f'const module the_module{{"{self.name}", {{']
        last = None
        for line, file, source in self.module.lines:
            if (file, source) != last:
                out.append(f'    {{{line}, "{file}", {source}}},')
            last = (file, source)
        out.append("}};")
        for f in entries:
            arguments = "".join(f", a[{k}]" for k in range(len(f.parameters)))
            out.append(f"void e_{f.name}(thread_context& t, unsigned char** {'a' if f.parameters else ''}) {{ f_{f.name}(t{arguments}); }}")
        out += ["const bool registered = [] {"]
        for f in entries:
            sizes = ", ".join(str(v.bytes) for v in f.parameters)
            out.append(f'    add_kernel({{"{f.name}", &e_{f.name}, {{{sizes}}}, {self.shared_bytes(f)}, {f.max_threads}, &the_module}});')
        for v in self.globals.values():
            if v.is_extern:
                continue
            initial = "nullptr"
            if v.values:
                type_ = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[BYTES[v.type]]
                values = ", ".join(f"{type_}({self.number(v, x)})" for x in v.values)
                out.append(f"    static const {type_} initial_{cpp_name(v.name)}[{v.bytes // BYTES[v.type]}] = {{{values}}};")
                initial = f"initial_{cpp_name(v.name)}"
            out.append(f'    add_variable({{"{v.name}", {v.bytes}, {initial}, {str(v.space == "const").lower()}}});')
        return out + ["    return true;", "}();", "", "}  // namespace"]

    def number(self, v, text):
        if m := re.match(r"0[fFdD]([0-9a-fA-F]+)$", text):
            return f"0x{m.group(1)}ull"
        if not re.match(r"-?(0x[0-9a-fA-F]+|\d+)U?$", text):
            raise PtxError(v.line, f"the initial value {text} of {v.name} is not a number")
        return f"{text.rstrip('U')}ull" if not text.startswith("-") else f"0 - {text[1:]}ull"


def split_names(text):
    return [n.strip() for n in text.split(",")]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        text = f.read()
    try:
        result = Translator(Module(text), sys.argv[1].rsplit("/", 1)[-1]).translation()
    except PtxError as e:
        sys.exit(f"translate.py: {sys.argv[1]}: {e}")
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(result)


if __name__ == "__main__":
    main()
