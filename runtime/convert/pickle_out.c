/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/convert/pickle_out.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

void plait_pickle_raw(struct plait_pickle_out *out, const void *bytes, size_t n)
{
    unsigned char *more = out->bytes;
    size_t room = out->room;

    while (room - out->n < n)
        room = room * 2 + 4096;
    if (room > out->room && !out->failed)
        more = realloc(out->bytes, room);
    if (!more || out->failed) {
        out->failed = true;
        return;
    }
    out->bytes = more;
    out->room = room;
    memcpy(more + out->n, bytes, n);
    out->n += n;
}

void plait_pickle_ops(struct plait_pickle_out *out, const char *opcodes)
{
    plait_pickle_raw(out, opcodes, strlen(opcodes));
}

void plait_pickle_text(struct plait_pickle_out *out, const char *text)
{
    uint32_t n = htole32((uint32_t)strlen(text));

    plait_pickle_ops(out, "X");
    plait_pickle_raw(out, &n, 4);
    plait_pickle_raw(out, text, strlen(text));
}

void plait_pickle_int(struct plait_pickle_out *out, int64_t i)
{
    uint64_t bits = htole64((uint64_t)i);

    if (i >= INT32_MIN && i <= INT32_MAX) {
        plait_pickle_ops(out, "J");
        plait_pickle_raw(out, &bits, 4);
    } else {
        plait_pickle_ops(out, "\x8a\x08");
        plait_pickle_raw(out, &bits, 8);
    }
}

void plait_pickle_real(struct plait_pickle_out *out, double r)
{
    uint64_t bits;

    memcpy(&bits, &r, sizeof(bits));
    bits = htobe64(bits);
    plait_pickle_ops(out, "G");
    plait_pickle_raw(out, &bits, sizeof(bits));
}

void plait_pickle_bool(struct plait_pickle_out *out, bool is)
{
    plait_pickle_ops(out, is ? "\x88" : "\x89");
}

void plait_pickle_name(struct plait_pickle_out *out, const char *module,
                       const char *name)
{
    plait_pickle_ops(out, "c");
    plait_pickle_ops(out, module);
    plait_pickle_ops(out, "\n");
    plait_pickle_ops(out, name);
    plait_pickle_ops(out, "\n");
}
