/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a launch: block after block, each thread until it waits. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "machine.h"

enum state { NEW, READY, AT_BARRIER, IN_WARP, DONE };

__thread struct emu_thread *emu_now __attribute__((tls_model("initial-exec")));

/* A slot is a stack with its thread's data above. Slots of threads that are
 * done serve the next ones, so that a kernel without barriers needs one. */
struct emu_private emu_private;
static int free_slot[EMU_THREADS], nfree, nslots;

static struct {
    const struct emu_launch *launch;
    struct emu_index block; /* the one that runs */
    struct emu_thread *thread[EMU_THREADS];
    enum state state[EMU_THREADS];
    int n, ndone;                             /* threads */
    unsigned waiting[EMU_THREADS / EMU_WARP]; /* lanes IN_WARP */
    unsigned gone[EMU_THREADS / EMU_WARP];    /* lanes DONE */
    void *host;
    bool backwards;
} run;

/* -- threads ------------------------------------------------------------------
 */

/* Tops differ by a few lines, or all of them would share one set of the
 * cache. */
static struct emu_thread *slot_data(int slot)
{
    return (void *)(emu_private.stacks + (size_t)(slot + 1) * EMU_STACK - 4096 -
                    (size_t)(slot % 16) * 192);
}

static int take_slot(void)
{
    if (emu_private.stacks == NULL) {
        emu_private.stacks =
            mmap(NULL, (size_t)EMU_THREADS * EMU_STACK, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (emu_private.stacks == MAP_FAILED)
            abort();
    }
    return nfree > 0 ? free_slot[--nfree] : nslots++;
}

static void to_host(enum state state)
{
    struct emu_thread *me = emu_now;

    run.state[me->number] = state;
    emu_fibre_switch(&me->sp, run.host);
}

void emu_leave(void)
{
    to_host(DONE);
    abort();
}

static void thread_main(void)
{
    run.launch->body(run.launch->closure);
    emu_finish_copies();
    emu_leave();
}

static void thread_start(int number)
{
    int slot = take_slot();
    struct emu_thread *t = slot_data(slot);
    const struct emu_index *size = &run.launch->block;
    unsigned i = (unsigned)number;

    memset(t, 0, sizeof(*t));
    t->thread.x = i % size->x;
    t->thread.y = i / size->x % size->y;
    t->thread.z = i / size->x / size->y;
    t->block = run.block;
    t->block_size = *size;
    t->grid = run.launch->grid;
    t->number = number;
    t->stack = emu_private.stacks + (size_t)slot * EMU_STACK;
    t->sp = emu_fibre_new(t->stack, (size_t)((char *)t - (char *)t->stack),
                          thread_main);
    run.thread[number] = t;
}

static void thread_run(int number)
{
    struct emu_thread *t;

    if (run.state[number] == NEW)
        thread_start(number);
    t = run.thread[number];
    emu_now = t;
    emu_fibre_switch(&run.host, t->sp);
    emu_now = NULL;
    if (run.state[number] != DONE)
        return;
    run.ndone++;
    run.gone[number / EMU_WARP] |= 1u << number % EMU_WARP;
    free_slot[nfree++] =
        (int)(((char *)t->stack - emu_private.stacks) / (ptrdiff_t)EMU_STACK);
}

/* -- waiting
 * -------------------------------------------------------------------- */

void emu_barrier(int line)
{
    emu_now->line = line;
    to_host(AT_BARRIER);
}

static bool is_same(const struct emu_thread *a, const struct emu_thread *b)
{
    return a->mask == b->mask && a->act == b->act && a->line == b->line;
}

/* The last of the lanes is there. Of its own, so that the others' calls do not
 * clear args. */
static __attribute__((noinline)) void act_for_all(int warp, const char *what)
{
    const struct emu_thread *me = emu_now;
    struct emu_thread **lanes = &run.thread[warp * EMU_WARP];
    unsigned mask = me->mask;
    void *args[EMU_WARP] = {NULL};

    for (int i = 0; i < EMU_WARP; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        if (!is_same(lanes[i], me))
            emu_fault("%s in line %d: lane %d is in line %d", what, me->line, i,
                      lanes[i]->line);
        args[i] = lanes[i]->arg;
        run.state[warp * EMU_WARP + i] = READY;
    }
    run.waiting[warp] &= ~mask;
    me->act(args, mask);
}

void emu_meet(unsigned mask, void *arg,
              void (*act)(void *const *args, unsigned mask), int line,
              const char *what)
{
    struct emu_thread *me = emu_now;
    int warp = me->number / EMU_WARP, lane = me->number % EMU_WARP;

    if ((mask >> lane & 1) == 0)
        emu_fault("%s: lane %d is not in its own mask %#x", what, lane, mask);
    if (mask & run.gone[warp])
        emu_fault("%s: waits for lanes %#x that have left", what,
                  mask & run.gone[warp]);
    me->mask = mask;
    me->act = act;
    me->arg = arg;
    me->line = line;
    run.waiting[warp] |= 1u << lane;
    if ((run.waiting[warp] & mask) == mask)
        act_for_all(warp, what);
    else
        to_host(IN_WARP);
}

/* -- a block
 * ----------------------------------------------------------------------- */

/* Lets every thread of the warp run until all of them wait. */
static void run_warp(int warp)
{
    int first = warp * EMU_WARP;
    int n = run.n - first < EMU_WARP ? run.n - first : EMU_WARP;
    bool again = true;

    while (again && emu_faulted() == NULL) {
        again = false;
        for (int i = 0; i < n && emu_faulted() == NULL; i++) {
            int t = first + (run.backwards ? n - 1 - i : i);

            if (run.state[t] == NEW || run.state[t] == READY) {
                thread_run(t);
                again = true;
            }
        }
    }
}

static int find_state(enum state state)
{
    for (int t = 0; t < run.n; t++)
        if (run.state[t] == state)
            return t;
    return -1;
}

/* No thread can go on: the end of a barrier, or an error. */
static void release_barrier(void)
{
    int stuck = find_state(IN_WARP), waits = find_state(AT_BARRIER);
    int gone = find_state(DONE);

    if (stuck >= 0)
        emu_fault("thread %d waits in line %d for lanes %#x of its warp, which "
                  "do not come",
                  stuck, run.thread[stuck]->line, run.thread[stuck]->mask);
    else if (gone >= 0)
        emu_fault("divergent barrier: thread %d waits in line %d, thread %d "
                  "has left the kernel",
                  waits, run.thread[waits]->line, gone);
    for (int t = 0; t < run.n && emu_faulted() == NULL; t++) {
        if (run.thread[t]->line != run.thread[0]->line)
            emu_fault("divergent barrier: thread 0 waits in line %d, thread %d "
                      "in line %d",
                      run.thread[0]->line, t, run.thread[t]->line);
        run.state[t] = READY;
    }
    emu_shadow_barrier();
}

static void run_block(struct emu_index block)
{
    int warps = (run.n + EMU_WARP - 1) / EMU_WARP;

    run.block = block;
    run.ndone = nfree = nslots = 0;
    memset(run.waiting, 0, sizeof(run.waiting));
    memset(run.gone, 0, sizeof(run.gone));
    for (int t = 0; t < run.n; t++)
        run.state[t] = NEW;
    if (run.n % EMU_WARP != 0) /* lanes that were never there */
        run.gone[warps - 1] = ~0u << run.n % EMU_WARP;
    emu_shadow_block();
    while (run.ndone < run.n && emu_faulted() == NULL) {
        for (int w = 0; w < warps; w++)
            run_warp(run.backwards ? warps - 1 - w : w);
        if (run.ndone < run.n && emu_faulted() == NULL)
            release_barrier();
    }
}

void emu_run(const struct emu_launch *l, bool backwards)
{
    size_t n = (size_t)l->grid.x * l->grid.y * l->grid.z;

    run.launch = l;
    emu_private.parameters = l->closure;
    emu_private.bytes = l->params;
    run.n = (int)(l->block.x * l->block.y * l->block.z);
    run.backwards = backwards;
    emu_shadow_launch(l->shared);
    for (size_t k = 0; k < n && emu_faulted() == NULL; k++) {
        size_t i = backwards ? n - 1 - k : k;

        run_block((struct emu_index){(unsigned)(i % l->grid.x),
                                     (unsigned)(i / l->grid.x % l->grid.y),
                                     (unsigned)(i / l->grid.x / l->grid.y)});
    }
    run.launch = NULL;
}

void emu_where(char *text, size_t size)
{
    const struct emu_thread *t = emu_now;

    if (run.launch == NULL)
        return;
    if (t == NULL)
        snprintf(text, size, ": %s", run.launch->name);
    else
        snprintf(text, size, ": %s, block %u,%u,%u, thread %u,%u,%u",
                 run.launch->name, t->block.x, t->block.y, t->block.z,
                 t->thread.x, t->thread.y, t->thread.z);
}

void emu_launch_bounds(int threads)
{
    if (run.n > threads)
        emu_fault("launched with blocks of %d threads, its bounds say %d",
                  run.n, threads);
}

const struct emu_index *emu_indices(void)
{
    return &emu_now->thread;
}
