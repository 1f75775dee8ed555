#!/usr/bin/env python3
"""Tests that the machine finds what breaks the rules of PTX, and nothing else: small kernels, each right or with one fault.

rules.py write FILE.ptx: writes the kernels. rules.py check PROGRAM TRANSLATE.PY: runs each by PROGRAM (run_rules.cpp) with several seeds.
"""
import os
import re
import subprocess
import sys
import tempfile

SEEDS = 6

# Kernels of two blocks; %a is 256 bytes of zeros, %f 256 bytes that have been freed. %i is the thread, %block the block, %c a constant 7.
# Each: name, threads, body, and what is expected: a pattern of the message, which each run prints, or some do ("in some runs: "); the words at
# %a ("..": any); None: right, any words; or what the reader of a message may see over all runs: "either" value, the "new" one only, or
# "any of" several words.
MESSAGE = """
    setp.ne.u32 %p, %i, 0; @%p bra done;
    setp.ne.u32 %p, %block, 0; @%p bra reader;
    {data_store} [%a], %c; {before}
    {flag_store} [%a+128], 1; bra done;
reader: {flag_load} %r, [%a+128]; setp.eq.u32 %p, %r, 0; @%p bra reader; {after}
    {data_load} %r, [%a]; st.global.u32 [%a+64], %r;
"""


def message(data_store="st.global.u32", before="", flag_store="st.release.gpu.global.u32", flag_load="ld.acquire.gpu.global.u32", after="",
            data_load="ld.global.u32"):
    return MESSAGE.format(**locals())


# All threads of block 0 write; thread 0 tells thread 0 of block 1; all of block 1 read.
BLOCKS = """
    mad.wide.u32 %ai, %i, 2, %a; setp.ne.u32 %p, %block, 0; @%p bra reader;
    st.global.u16 [%ai], %i; {before}
    setp.ne.u32 %p, %i, 0; @%p bra done;
    {fence} {flag_store} [%a+252], 1; bra done;
reader: setp.ne.u32 %p, %i, 0; @%p bra told;
poll: {flag_load} %r, [%a+252]; setp.eq.u32 %p, %r, 0; @%p bra poll; {second_fence}
told: {after} xor.b32 %j, %i, 33; mad.wide.u32 %aj, %j, 2, %a;
    ld.global.u16 %r, [%aj]; setp.eq.u32 %p, %r, %j; @%p bra done; trap;
"""


def blocks(before="bar.sync 0;", flag_store="st.release.gpu.global.u32", flag_load="ld.acquire.gpu.global.u32", after="bar.sync 0;", fence="",
           second_fence=""):
    return BLOCKS.format(**locals())


# Block 0 stores 0, and tells block 1, which then stores 7 there.
STORES = """
    setp.ne.u32 %p, %i, 0; @%p bra done; setp.ne.u32 %p, %block, 0; @%p bra second;
    st.relaxed.gpu.global.u32 [%a+64], 0; st.{release}.gpu.global.u32 [%a+128], 1; bra done;
second: ld.{acquire}.gpu.global.u32 %r, [%a+128]; setp.eq.u32 %p, %r, 0; @%p bra second; st.relaxed.gpu.global.u32 [%a+64], %c;
"""

# The threads meet between two looks of one of them for a word that does not come, and read much; they give up after 0.5 s.
TIMEOUT = """
    mov.u64 %f, %globaltimer;
again: setp.ne.u32 %p, %i, 0; @%p bra read; ld.relaxed.gpu.global.u32 %r, [%a+128];
read: mov.u32 %j, 0;
more: ld.global.u32 %r, [%a]; add.u32 %j, %j, 1; setp.lt.u32 %p, %j, 1000; @%p bra more;
    mov.u64 %aj, %globaltimer; sub.u64 %aj, %aj, %f; setp.gt.u64 %p, %aj, 500000000; bar.red.or.pred %p, 0, %p; @!%p bra again;
"""

# Each thread writes a word of shared memory and reads another's.
EXCHANGE = "st.shared.u32 [%si], %i; {between} xor.b32 %j, %i, {distance}; mad.lo.u32 %sj, %j, 4, %s; ld.shared.u32 %r, [%sj];"
RACE, RIGHT = r"line \d+ of its PTX.*: race in (global|shared) memory: .* at line \d+ of its PTX", None
MASK = "0xffffffff"
ON_DEVICE = "ld.param.u32 %block, [whole];"  # of a kernel devices_...: one block on each of two devices

KERNELS = [
    ("misaligned", 1, "ld.global.u32 %r, [%a+2];", r"misaligned access of 4 bytes at 0x"),
    ("misaligned_vector", 1, "{ .reg .b32 %x; ld.global.v2.u32 {%r, %x}, [%a+4]; }", r"misaligned access of 8 bytes"),
    ("past_the_end", 1, "ld.global.u32 %r, [%a+256];", r"read of 4 bytes at .*: out of bounds: at byte 256 of 256 bytes of device memory"),
    ("before_the_begin", 1, "st.global.u32 [%a+-4], %r;", r"write of 4 bytes at .*: (out of bounds|use after free): "),
    ("freed", 1, "ld.global.u32 %r, [%f+8];", r"use after free: it was in 256 bytes of device memory"),
    ("null", 1, "mov.u64 %a, 0; ld.u32 %r, [%a];", r"out of bounds"),
    ("shared_past_the_end", 1, "ld.shared.u32 %r, [%s+256];", r"shared memory out of bounds: byte 256 of 256"),
    ("shared_generic_past_the_end", 1, "cvta.shared.u64 %aj, words; ld.u32 %r, [%aj+252]; ld.u32 %r, [%aj+256];", r"out of bounds"),
    ("local_past_the_end", 1, "st.local.u32 [own+12], %i; st.local.u32 [own+16], %i;", r"out of the bounds of the thread's local memory"),
    ("local_through_a_pointer", 1, "cvta.local.u64 %aj, own; st.u32 [%aj+12], %i; ld.u32 %r, [%aj+16];", r"out of the bounds"),
    ("parameter_past_the_end", 1, "mov.b64 %aj, whole; cvta.param.u64 %aj, %aj; ld.param.u32 %r, [%aj+12]; ld.param.u32 %r, [%aj+4096];", r"out of"),
    ("trap", 1, "trap;", r"trap"),
    ("peer", 1, "ld.global.u32 %r, [%peer];", r"device 0 has no access to memory of device 1"),
    ("multicast_plain", 1, "ld.global.u32 %r, [%multi];", r"multicast memory at .* is for multimem"),
    # shared memory
    ("exchange", 64, EXCHANGE.format(between="bar.sync 0;", distance=33), RIGHT),
    ("exchange_without_barrier", 64, EXCHANGE.format(between="", distance=33), RACE),
    ("exchange_in_a_warp", 64, EXCHANGE.format(between=f"bar.warp.sync {MASK};", distance=1), RIGHT),
    ("exchange_across_warps", 64, EXCHANGE.format(between=f"bar.warp.sync {MASK};", distance=33), RACE),
    ("shuffle_does_not_order", 64, EXCHANGE.format(between=f"shfl.sync.bfly.b32 %r, %i, 1, 31, {MASK};", distance=1), RACE),
    ("vote_does_not_order", 64, EXCHANGE.format(between=f"vote.sync.any.pred %p, %p, {MASK};", distance=1), RACE),
    ("exchange_in_half_a_warp", 64, "and.b32 %j, %i, 16; setp.eq.u32 %p, %j, 0; selp.b32 %r, 0x0000ffff, 0xffff0000, %p;"
     + EXCHANGE.format(between="bar.warp.sync %r;", distance=1), RIGHT),
    ("exchange_across_halves", 64, "and.b32 %j, %i, 16; setp.eq.u32 %p, %j, 0; selp.b32 %r, 0x0000ffff, 0xffff0000, %p;"
     + EXCHANGE.format(between="bar.warp.sync %r;", distance=17), RACE),
    ("named_barrier", 64, EXCHANGE.format(between="bar.sync 3, 64;", distance=33), RIGHT),
    ("named_barrier_of_each_warp", 64, "shr.u32 %r, %i, 5;" + EXCHANGE.format(between="bar.sync %r, 32;", distance=1), RIGHT),
    ("named_barrier_of_other_warps", 64, "shr.u32 %r, %i, 5;" + EXCHANGE.format(between="bar.sync %r, 32;", distance=33), RACE),
    ("arrive_does_not_wait", 64, "setp.ge.u32 %p, %i, 32; @%p bra second; st.shared.u32 [%si], %i; bar.arrive 1, 64; bra done;"
     "second: bar.sync 1, 64; ld.shared.u32 %r, [%s];", RIGHT),
    ("read_then_overwritten", 64, EXCHANGE.format(between="bar.sync 0;", distance=33) + "st.shared.u32 [%si], 0;", RACE),
    ("read_barrier_overwritten", 64, EXCHANGE.format(between="bar.sync 0;", distance=33) + "bar.sync 0; st.shared.u32 [%si], 0;", RIGHT),
    ("shared_atomics", 64, "atom.shared.add.u32 %r, [%s], 1;", RIGHT),
    ("shared_atomic_and_plain", 64, "atom.shared.add.u32 %r, [%s], 1; ld.shared.u32 %r, [%s];", RACE),
    # between blocks
    ("message", 32, message(), RIGHT),
    ("message_store_relaxed", 32, message(flag_store="st.relaxed.gpu.global.u32"), RACE),
    ("message_store_weak", 32, message(flag_store="st.global.u32"), RACE),
    ("message_load_relaxed", 32, message(flag_load="ld.relaxed.gpu.global.u32"), RACE),
    ("message_load_volatile", 32, message(flag_load="ld.volatile.global.u32"), RACE),
    ("message_release_of_the_block", 32, message(flag_store="st.release.cta.global.u32"), RACE),
    ("message_acquire_of_the_block", 32, message(flag_load="ld.acquire.cta.global.u32"), RACE),
    ("message_by_fences", 32, message(before="fence.acq_rel.gpu;", flag_store="st.relaxed.gpu.global.u32", flag_load="ld.relaxed.gpu.global.u32",
                                      after="fence.acq_rel.gpu;"), RIGHT),
    ("message_by_membar", 32, message(before="membar.sys;", flag_store="st.volatile.global.u32", flag_load="ld.volatile.global.u32",
                                      after="membar.sys;"), RIGHT),
    ("message_first_fence_missing", 32, message(flag_store="st.relaxed.gpu.global.u32", flag_load="ld.relaxed.gpu.global.u32",
                                                after="fence.acq_rel.gpu;"), RACE),
    ("message_second_fence_missing", 32, message(before="fence.acq_rel.gpu;", flag_store="st.relaxed.gpu.global.u32",
                                                 flag_load="ld.relaxed.gpu.global.u32"), RACE),
    ("message_fence_of_the_block", 32, message(before="fence.acq_rel.cta;", flag_store="st.relaxed.gpu.global.u32"), RACE),
    ("message_by_exchange", 32, message(flag_store="{ .reg .b32 %x; atom.release.gpu.global.exch.b32 %x,",
                                        flag_load="ld.acquire.gpu.global.u32").replace("1; bra done", "1; } bra done"), RIGHT),
    ("message_by_relaxed_exchange", 32, message(flag_store="{ .reg .b32 %x; atom.global.exch.b32 %x,").replace("1; bra done", "1; } bra done"), RACE),
    # a load that takes the value of the store before the last takes what that one releases
    ("message_told_again", 32, message().replace("1; bra done", "1; st.release.gpu.global.u32 [%a+128], 2; bra done"), RIGHT),
    ("message_told_before", 32, message(before="st.relaxed.gpu.global.u32 [%a+128], 2;"), "in some runs: " + RACE),
    ("message_told_again_by_updates", 32, message().replace("1; bra done", "1; { .reg .b32 %x; atom.relaxed.gpu.global.add.u32 %x, [%a+128], 1; "
                                                            "atom.relaxed.gpu.global.add.u32 %x, [%a+128], 1; } bra done"), RIGHT),
    ("blocks", 64, blocks(), RIGHT),
    ("blocks_no_barrier_before", 64, blocks(before=""), RACE),
    ("blocks_barrier_behind_the_fence", 64, blocks(before="setp.ne.u32 %p, %i, 0; @!%p membar.gl; bar.sync 0;", flag_store="st.volatile.global.u32"), RACE),
    ("blocks_no_barrier_after", 64, blocks(after=""), RACE + "|trap"),
    ("blocks_relaxed_store", 64, blocks(flag_store="st.relaxed.sys.global.u32"), RACE),
    ("blocks_fence_before_the_stores", 64, "setp.ne.u32 %p, %i, 0; @!%p membar.sys;" + blocks(flag_store="st.relaxed.sys.global.u32"), RACE),
    ("blocks_relaxed_load", 64, blocks(flag_load="ld.relaxed.sys.global.u32"), RACE),
    ("blocks_fences", 64, blocks(fence="membar.gl;", flag_store="st.volatile.global.u32", flag_load="ld.volatile.global.u32",
                                 second_fence="membar.gl;"), RIGHT),
    ("blocks_fences_of_all", 64, blocks(before="membar.gl; bar.sync 0;", flag_store="st.volatile.global.u32"), RIGHT),
    ("blocks_fence_of_others_missing", 64, blocks(before="@%p membar.gl; bar.sync 0;", flag_store="st.volatile.global.u32"), RACE),
    # strong accesses may pass each other
    ("relaxed_data", 32, message(data_store="st.relaxed.gpu.global.u32", flag_store="st.relaxed.gpu.global.u32",
                                 flag_load="ld.relaxed.gpu.global.u32", data_load="ld.relaxed.gpu.global.u32"), "either"),
    ("relaxed_data_sequential", 32, message(data_store="st.relaxed.gpu.global.u32", before="membar.sys;", flag_store="st.relaxed.gpu.global.u32",
                                            flag_load="ld.relaxed.gpu.global.u32", after="membar.sys;", data_load="ld.relaxed.gpu.global.u32"),
     "new"),
    ("relaxed_data_one_fence", 32, message(data_store="st.relaxed.gpu.global.u32", flag_store="st.relaxed.gpu.global.u32",
                                           flag_load="ld.relaxed.gpu.global.u32", after="membar.sys;", data_load="ld.relaxed.gpu.global.u32"),
     "either"),
    ("several_older_values", 32, message(data_store="st.relaxed.gpu.global.u32 [%a], 5; st.relaxed.gpu.global.u32 [%a], 6; st.relaxed.gpu.global.u32",
                                         flag_store="st.relaxed.gpu.global.u32", flag_load="ld.relaxed.gpu.global.u32",
                                         data_load="ld.relaxed.gpu.global.u32"), "any of 00000000 00000005 00000006 00000007"),
    ("no_older_value_than_before", 32, message(data_store="st.relaxed.gpu.global.u32 [%a], 5; st.relaxed.gpu.global.u32", before="membar.gl;",
                                               flag_store="st.relaxed.gpu.global.u32", flag_load="ld.relaxed.gpu.global.u32",
                                               after="membar.gl;", data_load="ld.relaxed.gpu.global.u32 %r, [%a]; ld.relaxed.gpu.global.u32"), "new"),
    # memory that is only read
    ("read_only", 32, "ld.global.nc.u32 %r, [%a]; mad.wide.u32 %ai, %block, 4, %a; setp.ne.u32 %p, %i, 0; @%p bra done; st.global.u32 [%ai+64], %c;", RIGHT),
    ("read_only_of_a_message", 32, message(data_load="ld.global.nc.u32"), r"ld.global.nc may be stale"),
    ("read_only_of_the_own_store", 1, "mad.wide.u32 %ai, %block, 4, %a; st.global.u32 [%ai], %c; ld.global.nc.u32 %r, [%ai];",
     r"ld.global.nc may be stale"),
    # between devices: grids that nothing orders
    ("devices_unordered", 1, ON_DEVICE + "st.global.u32 [%a], %c;", RACE),
    ("devices_message", 32, ON_DEVICE + message(flag_store="st.release.sys.global.u32", flag_load="ld.acquire.sys.global.u32"), RIGHT),
    ("devices_release_of_the_device", 32, ON_DEVICE + message(flag_load="ld.acquire.sys.global.u32"), RACE),
    ("devices_acquire_of_the_device", 32, ON_DEVICE + message(flag_store="st.release.sys.global.u32"), RACE),
    ("devices_fences", 32, ON_DEVICE + message(before="membar.sys;", flag_store="st.volatile.global.u32", flag_load="ld.volatile.global.u32",
                                               after="membar.sys;"), RIGHT),
    ("devices_first_fence_of_the_device", 32, ON_DEVICE + message(before="membar.gl;", flag_store="st.volatile.global.u32",
                                                                  flag_load="ld.volatile.global.u32", after="membar.sys;"), RACE),
    ("devices_second_fence_of_the_device", 32, ON_DEVICE + message(before="membar.sys;", flag_store="st.volatile.global.u32",
                                                                   flag_load="ld.volatile.global.u32", after="membar.gl;"), RACE),
    ("devices_earlier_fence", 32, ON_DEVICE + message(data_store="membar.sys; st.global.u32", before="membar.gl;", flag_store="st.volatile.global.u32",
                                                                      flag_load="ld.volatile.global.u32", after="membar.sys;"), RACE),
    ("earlier_fence_of_the_system", 32, message(data_store="membar.sys; st.global.u32", before="membar.gl;", flag_store="st.volatile.global.u32",
                                                                flag_load="ld.volatile.global.u32", after="membar.gl;"), RIGHT),
    ("devices_fences_of_all_of_the_device", 64, ON_DEVICE + blocks(before="membar.gl; bar.sync 0;", flag_store="st.volatile.global.u32",
                                                                   flag_load="ld.acquire.sys.global.u32"), RACE),
    ("devices_atomics", 1, ON_DEVICE + "atom.sys.global.add.u32 %r, [%a], 1;", RIGHT),
    ("devices_atomics_of_the_device", 1, ON_DEVICE + "atom.global.add.u32 %r, [%a], 1;", RACE),
    ("relaxed_data_fence", 32, message(data_store="st.relaxed.gpu.global.u32", flag_store="st.relaxed.gpu.global.u32",
                                       flag_load="ld.relaxed.gpu.global.u32", after="fence.acq_rel.sys;", data_load="ld.relaxed.gpu.global.u32"),
     "either"),
    ("stores_unordered", 32, STORES.format(release="relaxed", acquire="relaxed"), "either"),
    ("stores_ordered", 32, STORES.format(release="release", acquire="acquire"), "new"),
    ("relaxed_data_released", 32, message(data_store="st.relaxed.gpu.global.u32", data_load="ld.relaxed.gpu.global.u32"), "new"),
    # threads that wait for what does not come
    ("deadlock", 64, "setp.lt.u32 %p, %i, 32; @%p bra other; bar.sync 1; bra done; other: bar.sync 2;", r"deadlock: 64 threads"),
    ("warps_meet_elsewhere", 32, "setp.lt.u32 %p, %i, 16; @%p bra other; bar.warp.sync 0xffffffff; bra done;"
     "other: shfl.sync.idx.b32 %r, %i, 0, 31, 0xffffffff;", r"lanes of the warp meet at different instructions"),
    ("lane_not_in_mask", 32, "bar.warp.sync 1;", r"does not name the thread's own lane"),
    ("shuffle_of_an_absent_lane", 32, "setp.ge.u32 %p, %i, 16; @%p bra done; shfl.sync.idx.b32 %r, %i, 20, 31, 0xffff;", r"does not take part"),
    ("timeout_between_barriers", 64, TIMEOUT, RIGHT),
    ("exit_counts", 64, "setp.ge.u32 %p, %i, 32; @%p bra done; bar.sync 0;", RIGHT),
    # exchanges in a warp
    ("shuffle", 32, "shfl.sync.down.b32 %r|%p, %i, 4, 31, 0xffffffff; add.u32 %j, %i, 4; min.u32 %j, %j, 31; @!%p mov.u32 %j, %i;"
     "setp.eq.u32 %p, %r, %j; @%p bra done; trap;", RIGHT),
    ("ballot", 32, "setp.lt.u32 %p, %i, 5; vote.sync.ballot.b32 %r, %p, 0xffffffff; setp.eq.u32 %p, %r, 31; @%p bra done; trap;", RIGHT),
    ("match", 32, "shr.u32 %j, %i, 4; match.any.sync.b32 %r, %j, 0xffffffff; shr.u32 %j, %r, %i; and.b32 %j, %j, 1; popc.b32 %r, %r;"
     "setp.eq.and.u32 %p, %j, 1, %p; setp.eq.u32 %p, %r, 16; @%p bra done; trap;", RIGHT),
    ("redux", 32, "redux.sync.add.u32 %r, %i, 0xffffffff; setp.eq.u32 %p, %r, 496; @%p bra done; trap;", RIGHT),
    ("barrier_count", 64, "setp.lt.u32 %p, %i, 5; bar.red.popc.u32 %r, 0, %p; setp.eq.u32 %p, %r, 5; @%p bra done; trap;", RIGHT),
    ("atomics", 64, "red.global.add.u32 [%a+128], 1; atom.global.cas.b32 %r, [%a+4], 0, 9; atom.global.max.s32 %r, [%a+8], %i;"
     "atom.global.add.f32 %fl, [%a+12], 0f3F800000;", "words .. 00000009 0000003f 43000000"),
    ("copy_async", 32, "mad.wide.u32 %aj, %i, 0, %a; cp.async.ca.shared.global [%si], [%aj], 4; cp.async.commit_group; cp.async.wait_group 0;"
     "ld.shared.u32 %r, [%si]; setp.eq.u32 %p, %r, 0; @%p bra done; trap;", RIGHT),
    ("copy_async_without_wait", 32, "cp.async.ca.shared.global [%si], [%a], 4; cp.async.commit_group; ld.shared.u32 %r, [%si];"
     "setp.eq.u32 %p, %r, 0; @%p bra done; trap;", r"trap"),
    # multicast memory: two copies
    ("multimem", 1, "setp.ne.u32 %p, %block, 0; @%p bra done; multimem.st.relaxed.sys.global.u32 [%multi], 5; multimem.red.relaxed.sys.global.add.u32 [%multi+4], 3;"
     "multimem.ld_reduce.relaxed.sys.global.add.u32 %r, [%multi]; st.global.u32 [%a+16], %r; ld.relaxed.sys.global.u32 %r, [%one+4]; st.global.u32 [%a+20], %r;",
     "words .. .. .. .. 0000000a 00000003"),
]


def kernel(name, body):
    return f""".visible .entry {name}(.param .u64 p_a, .param .u64 p_f, .param .u64 p_peer, .param .u64 p_multi, .param .u64 p_one,
    .param .align 8 .b8 whole[16])
{{
    .reg .b64 %a, %f, %ai, %aj, %peer, %multi, %one; .reg .b32 %i, %j, %r, %c, %block, %s, %si, %sj; .reg .f32 %fl; .reg .pred %p;
    .local .align 4 .b8 own[16];
    ld.param.u64 %a, [p_a]; ld.param.u64 %f, [p_f]; ld.param.u64 %peer, [p_peer]; ld.param.u64 %multi, [p_multi]; ld.param.u64 %one, [p_one];
    mov.u32 %i, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %c, 7; mov.u32 %s, words; setp.ne.u32 %p, %i, 0;
    mad.lo.u32 %si, %i, 4, %s; mad.wide.u32 %ai, %i, 4, %a;
    {body}
done: ret;
}}"""


UNKNOWN = [("tex.1d.v4.f32.s32 {%r, %r, %r, %r}, [%a, {%r}];", "tex.1d.v4.f32.s32"), ("add.rm.f32 %fl, %fl, %fl;", "add.rm.f32"),
           ("ld.global.b7 %r, [%a];", "ld.global.b7"), ("wgmma.fence.sync.aligned;", "wgmma.fence"), ("atom.global.frob.u32 %r, [%a], 1;", "frob"),
           ("mov.u32 %r, %nothing;", "%nothing"), ("ld.param.u64 %a, [p_a+4];", "outside of parameter")]


def write(path):
    with open(path, "w", encoding="utf-8") as f:
        f.write(".version 8.8\n.target sm_90\n.address_size 64\n.shared .align 4 .b8 words[256];\n")
        f.write("\n".join(kernel(name, body) for name, _, body, _ in KERNELS) + "\n")


def fault_of(name, threads, expected, program):
    """What is wrong with the runs of a kernel; None if nothing is."""
    seen = set()
    in_some, expected = (expected or "").startswith("in some runs: "), expected and expected.removeprefix("in some runs: ")
    missed = 0
    several = (expected or "").startswith("any of ")
    for seed in range(1, 1 + SEEDS * (4 if expected == "either" else 16 if several else 1)):
        try:
            done = subprocess.run([program, name, str(threads)], capture_output=True, text=True, check=False, timeout=10,
                                  env={**os.environ, "EMULATED_SEED": str(seed)})
        except subprocess.TimeoutExpired:
            return f"seed {seed}: did not end within 10 s"
        words = done.stdout.split()
        if expected is None or several or expected in ("either", "new") or expected.startswith("words"):
            if done.returncode != 0:
                return f"seed {seed}: {done.stderr}"
            if expected and expected.startswith("words") and any(w not in ("..", g) for w, g in zip(expected.split()[1:], words)):
                return f"seed {seed}: {done.stdout}"
            seen.add(words[16])
        elif done.returncode != 70 or not re.search(expected, done.stderr):
            missed += 1
            if in_some and missed < SEEDS:
                continue
            return f"seed {seed}: not found: {done.stderr}"
    wanted = set(expected.split()[2:]) if several else {"either": {"00000000", "00000007"}, "new": {"00000007"}}.get(expected)
    return f"seen {seen}" if wanted and seen != wanted else None


def calls_that_do_not_count():
    """Functions of the stand-in that neither count themselves (EMULATED_CALL with their own name) nor are those that ask for the last error."""
    here, found, seen = os.path.join(os.path.dirname(os.path.abspath(__file__)), "runtime"), [], 0
    for name in sorted(os.listdir(here)):
        with open(os.path.join(here, name), encoding="utf-8") as f:
            for function, body in re.findall(r"^cudaError_t (cuda\w+)\([^{;]*\) \{(.{0,90})", f.read(), re.M | re.S):
                seen += 1
                if function not in ("cudaGetLastError", "cudaPeekAtLastError") and not body.lstrip().startswith(f'EMULATED_CALL("{function}");'):
                    found.append(function)
    return found if seen > 50 else ["no function of runtime/ was read"]


def check(program, translate):
    wrong = len(calls_that_do_not_count())
    for function in calls_that_do_not_count():
        print(f"{function} does not count itself by EMULATED_CALL")
    for name, threads, _, expected in KERNELS:
        fault = fault_of(name, threads, expected, program)
        if fault:
            print(f"{name}: {fault}")
            wrong += 1
    with tempfile.TemporaryDirectory() as folder:
        for body, message_part in UNKNOWN:
            path = os.path.join(folder, "unknown.ptx")
            with open(path, "w", encoding="utf-8") as f:
                f.write(".shared .align 4 .b8 words[256];\n" + kernel("unknown", body))
            done = subprocess.run([sys.executable, translate, path, os.path.join(folder, "unknown.cpp")], capture_output=True, text=True, check=False)
            if done.returncode == 0 or message_part not in done.stderr or "line " not in done.stderr:
                print(f"{body}: translated, or not named: {done.stderr}")
                wrong += 1
    print(f"{len(KERNELS)} kernels, {SEEDS} seeds, {len(UNKNOWN)} instructions that are not known: {wrong} wrong")
    return 1 if wrong else 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "write":
        return write(sys.argv[2])
    if len(sys.argv) == 4 and sys.argv[1] == "check":
        return check(sys.argv[2], sys.argv[3])
    return __doc__


if __name__ == "__main__":
    sys.exit(main())
