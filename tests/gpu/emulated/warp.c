/* SPDX-License-Identifier: Apache-2.0 */
/* What the lanes of a warp do together, atomics, and arrays in shared
 * memory. */
#include "known.h"

static int warp_of_now(void)
{
    return emu_now->number / EMU_WARP;
}

/* Orders memory accesses, if all lanes of the warp take part. */
static void act_barrier(void *const *args, unsigned mask)
{
    (void)args;
    if (mask == 0xffffffff)
        emu_shadow_warp(warp_of_now());
}

void emu_warp_barrier(unsigned mask, int line)
{
    emu_meet(mask, NULL, act_barrier, line, "__syncwarp");
}

struct shuffle {
    uint64_t give, get;
    int lanes;
};

static void act_shuffle(void *const *args, unsigned mask)
{
    for (int i = 0; i < EMU_WARP; i++) {
        struct shuffle *mine = args[i];
        int other;

        if (mine == NULL)
            continue;
        other = i ^ mine->lanes;
        if (other < 0 || other >= EMU_WARP || (mask >> other & 1) == 0)
            emu_fault("__shfl_xor_sync: lane %d reads lane %d, which is not in "
                      "the mask %#x",
                      i, other, mask);
        mine->get = ((const struct shuffle *)args[other])->give;
    }
}

uint64_t emu_shuffle_xor(unsigned mask, uint64_t value, int lanes, int line)
{
    struct shuffle s = {.give = value, .lanes = lanes};

    emu_meet(mask, &s, act_shuffle, line, "__shfl_xor_sync");
    return s.get;
}

struct ballot {
    int vote;
    unsigned all;
};

static void act_ballot(void *const *args, unsigned mask)
{
    unsigned all = 0;

    for (int i = 0; i < EMU_WARP; i++)
        if (mask >> i & 1 && ((const struct ballot *)args[i])->vote)
            all |= 1u << i;
    for (int i = 0; i < EMU_WARP; i++)
        if (mask >> i & 1)
            ((struct ballot *)args[i])->all = all;
}

unsigned emu_ballot(unsigned mask, int vote, int line)
{
    struct ballot b = {.vote = vote};

    emu_meet(mask, &b, act_ballot, line, "__ballot_sync");
    return b.all;
}

/* -- atomics ------------------------------------------------------------------
 */

static void atomic(const void *p, size_t bytes, const void *pc)
{
    if ((uintptr_t)p % bytes != 0)
        emu_fault_at(pc, "misaligned atomic access of %zu bytes", bytes);
    emu_shadow_access(p, bytes, EMU_ATOMIC, pc);
}

float emu_atomic_add_float(float *p, float x)
{
    float old;

    atomic(p, sizeof(*p), __builtin_return_address(0));
    old = *p;
    *p = old + x;
    return old;
}

int emu_atomic_add_int(int *p, int x)
{
    int old;

    atomic(p, sizeof(*p), __builtin_return_address(0));
    old = *p;
    *p = old + x;
    return old;
}

unsigned emu_atomic_max(unsigned *p, unsigned x)
{
    unsigned old;

    atomic(p, sizeof(*p), __builtin_return_address(0));
    old = *p;
    *p = old > x ? old : x;
    return old;
}

int emu_atomic_max_int(int *p, int x)
{
    int old;

    atomic(p, sizeof(*p), __builtin_return_address(0));
    old = *p;
    *p = old > x ? old : x;
    return old;
}

unsigned emu_atomic_min(unsigned *p, unsigned x)
{
    unsigned old;

    atomic(p, sizeof(*p), __builtin_return_address(0));
    old = *p;
    *p = old < x ? old : x;
    return old;
}

/* -- shared memory
 * -------------------------------------------------------------- */

void *emu_dynamic_shared(size_t align)
{
    return emu_shadow_array(NULL, 0, align);
}

void *emu_static_shared(const void *key, size_t bytes, size_t align)
{
    return emu_shadow_array(key, bytes, align);
}

unsigned emu_shared_address(const void *p)
{
    return (unsigned)((const char *)p - emu_window);
}
