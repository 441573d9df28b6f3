/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_CONVERT_PICKLE_OUT_H
#define PLAIT_RUNTIME_CONVERT_PICKLE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A pickle of protocol 2 while it is written: values one after the other, and
 * the opcodes that join them. Begins as {0}; if memory runs out, `failed` is
 * set. The owner frees `bytes`. */
struct plait_pickle_out {
    unsigned char *bytes;
    size_t n, room;
    bool failed;
};

void plait_pickle_raw(struct plait_pickle_out *out, const void *bytes,
                      size_t n);
/* Opcodes without arguments, one letter each. */
void plait_pickle_ops(struct plait_pickle_out *out, const char *opcodes);
void plait_pickle_text(struct plait_pickle_out *out, const char *text);
void plait_pickle_int(struct plait_pickle_out *out, int64_t i);
void plait_pickle_real(struct plait_pickle_out *out, double r);
void plait_pickle_bool(struct plait_pickle_out *out, bool is);
void plait_pickle_name(struct plait_pickle_out *out, const char *module,
                       const char *name);

#endif
