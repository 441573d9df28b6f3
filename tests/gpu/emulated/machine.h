/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_MACHINE_H
#define PLAIT_TESTS_GPU_EMULATED_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulated_calls.h"

/* Declarations that the files of the emulated GPU share; kernels see emulated.h
 * instead. Blocks run one after another; a block's threads are fibres of one
 * host thread. */

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EMU_WARP = 32,
    EMU_THREADS = 1024,          /* of a block, at most */
    EMU_STACK = 64 << 10,        /* bytes of a thread's */
    EMU_SMS = 132,               /* as on an H100 SXM */
    EMU_SHARED_PLAIN = 48 << 10, /* shared memory of any kernel */
    EMU_SHARED_MOST = 232448,    /* that a block can ask for: 227 KiB */
    EMU_LANES = 64               /* streams, and streams of graphs */
};

/* A thread of the running block. */
struct emu_thread {
    struct emu_index thread, block, block_size, grid;
    void *sp;                /* stack pointer while it does not run */
    void *stack;             /* its slot */
    struct emu_copy *copies; /* asynchronous copies under way, oldest first */
    int committed;           /* how many groups of copies it has committed */
    int number;              /* within the block */
    /* Where it waits: the source line, and what it passed to emu_meet(). */
    int line;
    unsigned mask;
    void (*act)(void *const *args, unsigned mask);
    void *arg;
};

/* -- errors (fault.c) ------------------------------------------------------ */

/* Reports an error that a GPU would make of a kernel or refuse in a call. The
 * first is kept, and from then on all calls of the runtime fail with it. Does
 * not return in a fibre. */
void emu_fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, with the source line of the code at pc. */
void emu_fault_at(const void *pc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The text of the first fault; NULL: none. */
const char *emu_faulted(void);

/* -- memory (memory.c) ----------------------------------------------------- */

/* All allocations lie in one range of addresses. Each has units of its own, at
 * multiples of their size. */
#define EMU_UNIT ((size_t)1 << 16)
#define EMU_UNITS ((size_t)1 << 18) /* 16 GiB */

extern char *emu_range; /* NULL: nothing has been allocated */

struct emu_memory {
    uintptr_t from, to;
    unsigned born; /* epoch of its allocation */
    bool pinned;   /* memory of the host */
    bool whole;    /* all of it has been written */
    unsigned number;
    /* For ranges.c: the last epoch in which any of it was used, one in which
     * all of it was written; the last operation of each lane that used it. */
    unsigned touched, all_written;
    unsigned use[EMU_LANES];
};

void *emu_memory_new(size_t bytes, bool pinned);
/* -1: ptr is no allocation. */
int emu_memory_free(void *ptr, bool pinned);
/* The allocation that contains p, or NULL. */
const struct emu_memory *emu_memory_at(uintptr_t p);
/* Whether p is within the range of addresses of all allocations. */
bool emu_memory_is(const void *p);
/* Whether [p, p + bytes) is in one allocation; if not, a fault with `what`. */
bool emu_memory_check(const void *p, size_t bytes, const char *what);
/* The same, and that all of it has been written. */
bool emu_memory_filled(const void *p, size_t bytes, const char *what);
/* To be called when something other than a kernel has written memory. */
void emu_memory_written(const void *p, size_t bytes);

/* -- checks of accesses (shadow.c) ----------------------------------------- */

enum emu_access { EMU_READ, EMU_WRITE, EMU_ATOMIC };

/* To be called before a launch, before each of its blocks, and at each barrier
 * of a block. */
void emu_shadow_launch(size_t shared);
void emu_shadow_block(void);
void emu_shadow_barrier(void);
/* To be called when all lanes of a warp have waited for each other. */
void emu_shadow_warp(int warp);
/* An asynchronous copy to this shared memory begins (begin_copy) or is complete
 * (end_copy). */
void emu_shadow_begin_copy(const void *p, size_t bytes, const void *pc);
void emu_shadow_end_copy(const void *p, size_t bytes, const void *pc);
/* An array in the launch's shared memory: the same for the same key, aligned as
 * asked for and no better. key NULL: the dynamic shared memory. */
void *emu_shadow_array(const void *key, size_t bytes, size_t align);
unsigned emu_shadow_epoch(void);
/* Begins the next epoch and returns it. */
unsigned emu_shadow_next(void);
void emu_shadow_mark(uintptr_t p, size_t bytes);
bool emu_shadow_marked(uintptr_t p, size_t bytes, unsigned born);

/* -- running a block (block.c) ----------------------------------------------
 */

/* The running thread; NULL: host code runs. */
extern __thread struct emu_thread *emu_now
    __attribute__((tls_model("initial-exec")));

struct emu_launch {
    const char *name;   /* as in the source */
    const void *kernel; /* NULL: it has no dynamic shared memory */
    struct emu_index grid, block;
    size_t shared, params; /* bytes */
    void (*body)(void *closure);
    void *closure;
    void (*forget)(void *closure);
};

/* Runs all blocks, the last ones first if `backwards`. */
void emu_run(const struct emu_launch *launch, bool backwards);
/* Ends the launch from a thread that cannot go on. */
void emu_leave(void) __attribute__((noreturn));
/* Memory that only its thread uses: stacks, and a launch's parameters. */
extern struct emu_private {
    char *stacks; /* EMU_THREADS of EMU_STACK bytes */
    const char *parameters;
    size_t bytes; /* of parameters */
} emu_private;

static inline bool emu_is_private(const void *p)
{
    const struct emu_private *own = &emu_private;

    return (size_t)((const char *)p - own->stacks) <
               (size_t)EMU_THREADS * EMU_STACK ||
           (size_t)((const char *)p - own->parameters) < own->bytes;
}

void emu_where(char *text, size_t size);

/* Waits until all lanes of `mask` have called it; one of them then calls act
 * with the arg of each lane, NULL for lanes outside of the mask. */
void emu_meet(unsigned mask, void *arg,
              void (*act)(void *const *args, unsigned mask), int line,
              const char *what);

/* -- asynchronous copies (ptx.c) --------------------------------------------
 */

/* Completes the copies of a thread that ends. */
void emu_finish_copies(void);

/* -- the switch between threads (fibre.c) -----------------------------------
 */

void *emu_fibre_new(void *stack, size_t bytes, void (*entry)(void));
void emu_fibre_switch(void **from, void *to);

#ifdef __cplusplus
}
#endif
#endif
