/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that -fsanitize=thread makes kernels/cuda's code call before
 * each access. Accesses by host code and to a thread's own stack pass
 * unchecked. */
#include "known.h"

#define EXPORT __attribute__((visibility("hidden")))

/* aligned: one instruction moves all bytes, so their address must be
 * aligned. */
static inline void at_access(const void *p, size_t bytes, bool aligned,
                             enum emu_access kind, const void *pc)
{
    if (emu_now == NULL || emu_is_private(p))
        return;
    if (aligned && (uintptr_t)p % bytes != 0)
        emu_fault_at(pc, "misaligned access of %zu bytes at %p", bytes, p);
    else
        emu_shadow_access(p, bytes, kind, pc);
}

#define ACCESS(bytes)                                                      \
    EXPORT void __tsan_read##bytes(void *p);                               \
    EXPORT void __tsan_write##bytes(void *p);                              \
    void __tsan_read##bytes(void *p)                                       \
    {                                                                      \
        at_access(p, bytes, true, EMU_READ, __builtin_return_address(0));  \
    }                                                                      \
    void __tsan_write##bytes(void *p)                                      \
    {                                                                      \
        at_access(p, bytes, true, EMU_WRITE, __builtin_return_address(0)); \
    }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

EXPORT void __tsan_init(void);
EXPORT void __tsan_func_entry(void *pc);
EXPORT void __tsan_func_exit(void);
EXPORT void __tsan_vptr_update(void *p, void *value);
EXPORT void __tsan_read_range(void *p, size_t bytes);
EXPORT void __tsan_write_range(void *p, size_t bytes);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *pc)
{
    (void)pc;
}

void __tsan_func_exit(void)
{
}

void __tsan_vptr_update(void *p, void *value)
{
    (void)p;
    (void)value;
}

void __tsan_read_range(void *p, size_t bytes)
{
    at_access(p, bytes, false, EMU_READ, __builtin_return_address(0));
}

void __tsan_write_range(void *p, size_t bytes)
{
    at_access(p, bytes, false, EMU_WRITE, __builtin_return_address(0));
}
