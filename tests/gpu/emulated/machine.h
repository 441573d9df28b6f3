/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TESTS_GPU_EMULATED_MACHINE_H
#define PLAIT_TESTS_GPU_EMULATED_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulated_calls.h"

/* What the files of the emulated GPU share; emulated.h is what a kernel sees
 * of it. Blocks run one after another; a block's threads are fibres of one
 * host thread. */

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EMU_WARP = 32,
    EMU_THREADS = 1024,          /* of a block, at most */
    EMU_SMS = 132,               /* as on an H100 SXM */
    EMU_SHARED_PLAIN = 48 << 10, /* what every kernel may have */
    EMU_SHARED_MOST = 232448,    /* what a block can have if it asks: 227 KiB */
    EMU_LANES = 64               /* streams, and those of graphs */
};

/* A thread of the block that runs. */
struct emu_thread {
    struct emu_index thread, block, block_size, grid;
    void *sp;                /* where it goes on */
    void *stack;             /* the slot it has */
    struct emu_copy *copies; /* asynchronous copies under way, oldest first */
    int committed;           /* groups of them */
    int number;              /* within the block */
    /* Where it waits: the line, and with which operation of its warp. */
    int line;
    unsigned mask;
    void (*act)(void *const *args, unsigned mask);
    void *arg;
};

/* -- errors (fault.c) ------------------------------------------------------ */

/* What a GPU would have done wrong, or be asked wrongly. The first is kept:
 * from then on all calls of the runtime fail with it. On a fibre it does not
 * return. */
void emu_fault(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, of the code at `pc`. */
void emu_fault_at(const void *pc, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The text of the first fault; NULL: none. */
const char *emu_faulted(void);

/* -- memory (memory.c) ----------------------------------------------------- */

struct emu_memory {
    uintptr_t from, to;
    unsigned born; /* the epoch it was made in */
    bool pinned;   /* memory of the host */
    bool whole;    /* all of it has been written */
    unsigned number;
    /* For ranges.c: the last epoch in which it was used, one in which all of it
     * was written; the last operation of each lane that has used it. */
    unsigned touched, all_written;
    unsigned use[EMU_LANES];
};

void *emu_memory_new(size_t bytes, bool pinned);
/* -1: there is none at ptr. */
int emu_memory_free(void *ptr, bool pinned);
/* The memory that p lies in, or NULL. */
const struct emu_memory *emu_memory_at(uintptr_t p);
/* Whether p is of the addresses that memory is made in. */
bool emu_memory_is(const void *p);
/* Whether all of [p, p + bytes) may be used; else a fault that names what. */
bool emu_memory_check(const void *p, size_t bytes, const char *what);
/* The same, and that it has been written. */
bool emu_memory_filled(const void *p, size_t bytes, const char *what);
/* Somebody other than a kernel has written there. */
void emu_memory_written(const void *p, size_t bytes);

/* -- what accesses are held against (shadow.c) ----------------------------- */

enum emu_access { EMU_READ, EMU_WRITE, EMU_ATOMIC };

/* Around a launch, and around each of its blocks. */
void emu_shadow_launch(size_t shared);
void emu_shadow_block(void);
void emu_shadow_barrier(void);
/* All lanes of a warp have waited for each other. */
void emu_shadow_warp(int warp);
/* A running thread's access to memory. */
void emu_shadow_access(const void *p, size_t bytes, enum emu_access kind,
                       const void *pc);
/* An asynchronous copy to shared memory begins there, or has arrived. */
void emu_shadow_begin_copy(const void *p, size_t bytes, const void *pc);
void emu_shadow_end_copy(const void *p, size_t bytes, const void *pc);
/* Shared memory of the launch: an array of `bytes`, the same for each key, at
 * an address of this alignment and no larger one. */
void *emu_shadow_array(const void *key, size_t bytes, size_t align);
/* The window of shared memory. */
char *emu_shadow_window(void);
unsigned emu_shadow_epoch(void);
/* Begins another. */
unsigned emu_shadow_next(void);
void emu_shadow_mark(uintptr_t p, size_t bytes);
bool emu_shadow_marked(uintptr_t p, size_t bytes, unsigned born);

/* -- running a block (block.c) ----------------------------------------------
 */

/* The thread that runs; NULL: the host does. */
extern __thread struct emu_thread *emu_now
    __attribute__((tls_model("initial-exec")));

struct emu_launch {
    const char *name;   /* as the source has it */
    const void *kernel; /* NULL: it has no dynamic shared memory */
    struct emu_index grid, block;
    size_t shared, params; /* bytes */
    void (*body)(void *closure);
    void *closure;
    void (*forget)(void *closure);
};

/* Runs all of its blocks, the last ones first if `backwards`. */
void emu_run(const struct emu_launch *launch, bool backwards);
/* Leaves a thread that cannot go on. */
void emu_leave(void) __attribute__((noreturn));
/* Whether p lies in the stack of a thread, or among a launch's parameters. */
bool emu_is_private(const void *p);
void emu_where(char *text, size_t size);

/* Until all lanes of `mask` are here: then one of them calls act, with what
 * each of them gave; NULL for lanes outside of the mask. */
void emu_meet(unsigned mask, void *arg,
              void (*act)(void *const *args, unsigned mask), int line,
              const char *what);

/* -- asynchronous copies (ptx.c) --------------------------------------------
 */

/* A thread that ends waits for its copies. */
void emu_finish_copies(void);

/* -- the switch between threads (fibre.c) -----------------------------------
 */

enum { EMU_STACK = 64 << 10 };

void *emu_fibre_new(void *stack, size_t bytes, void (*entry)(void));
void emu_fibre_switch(void **from, void *to);

#ifdef __cplusplus
}
#endif
#endif
