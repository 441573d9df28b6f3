/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/convert/torch_out.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All entries use the long form of a zip (zip64), so that files of any size are
 * written the same way. Data begin at multiples of 64 bytes, as in PyTorch's
 * files. */

enum { ALIGN = 64, HEADER = 30, CRC_AT = 14, LONG = 20, PAD = 4, DATE = 0x21 };

static void put16(struct plait_pickle_out *out, unsigned n)
{
    uint16_t bits = htole16((uint16_t)n);

    plait_pickle_raw(out, &bits, sizeof(bits));
}

static void put32(struct plait_pickle_out *out, uint32_t n)
{
    n = htole32(n);
    plait_pickle_raw(out, &n, sizeof(n));
}

static void put64(struct plait_pickle_out *out, uint64_t n)
{
    n = htole64(n);
    plait_pickle_raw(out, &n, sizeof(n));
}

int plait_torch_out_open(struct plait_torch_out *out, const char *path)
{
    memset(out, 0, sizeof(*out));
    return plait_file_out_open(&out->file, path);
}

/* Writes the bytes, and frees them. */
static int flush(struct plait_torch_out *out, struct plait_pickle_out *bytes)
{
    int rc = -1;

    if (bytes->failed)
        errno = ENOMEM;
    else
        rc = plait_file_out_write(&out->file, bytes->bytes, bytes->n);
    free(bytes->bytes);
    memset(bytes, 0, sizeof(*bytes));
    return rc;
}

/* The fields from "version needed" to the date, which header and list have in
 * common. */
static void put_begin(struct plait_pickle_out *to)
{
    put16(to, 45); /* the version with the long form */
    put16(to, 0);
    put16(to, 0); /* not compressed */
    put16(to, 0);
    put16(to, DATE);
}

int plait_torch_out_begin(struct plait_torch_out *out, const char *name,
                          uint64_t size)
{
    static const char zeros[ALIGN];
    struct plait_pickle_out head = {0};
    size_t n = strlen(name), pad;

    snprintf(out->name, sizeof(out->name), "%s", name);
    out->header = out->file.bytes;
    pad = (size_t)(out->header + HEADER + n + LONG + PAD) % ALIGN;
    pad = (ALIGN - pad) % ALIGN;
    plait_pickle_raw(&head, "PK\3\4", 4);
    put_begin(&head);
    put32(&head, 0); /* the checksum is patched in later */
    put32(&head, 0xffffffff);
    put32(&head, 0xffffffff);
    put16(&head, (unsigned)n);
    put16(&head, (unsigned)(LONG + PAD + pad));
    plait_pickle_raw(&head, name, n);
    put16(&head, 1);
    put16(&head, 16);
    put64(&head, size);
    put64(&head, size);
    put16(&head, 0x4246); /* filler */
    put16(&head, (unsigned)pad);
    plait_pickle_raw(&head, zeros, pad);
    if (flush(out, &head) < 0)
        return -1;
    out->data = out->file.bytes;
    out->file.crc = 0;
    return 0;
}

int plait_torch_out_end(struct plait_torch_out *out)
{
    uint64_t size = out->file.bytes - out->data;
    uint32_t crc = htole32(out->file.crc);
    struct plait_pickle_out *l = &out->list;

    plait_pickle_raw(l, "PK\1\2", 4);
    put16(l, 45);
    put_begin(l);
    put32(l, out->file.crc);
    put32(l, 0xffffffff);
    put32(l, 0xffffffff);
    put16(l, (unsigned)strlen(out->name));
    put16(l, 28);
    put16(l, 0);
    put16(l, 0);
    put16(l, 0);
    put32(l, 0);
    put32(l, 0xffffffff);
    plait_pickle_ops(l, out->name);
    put16(l, 1);
    put16(l, 24);
    put64(l, size);
    put64(l, size);
    put64(l, out->header);
    out->entries++;
    return plait_file_out_patch(&out->file, out->header + CRC_AT, &crc, 4);
}

int plait_torch_out_entry(struct plait_torch_out *out, const char *name,
                          const void *bytes, size_t size)
{
    return plait_torch_out_begin(out, name, size) < 0 ||
                   plait_file_out_write(&out->file, bytes, size) < 0
               ? -1
               : plait_torch_out_end(out);
}

static int write_list(struct plait_torch_out *out)
{
    uint64_t at = out->file.bytes, size = out->list.n, end = at + size;
    struct plait_pickle_out *l = &out->list;

    plait_pickle_raw(l, "PK\6\6", 4);
    put64(l, 44); /* size of the rest of this record */
    put16(l, 45);
    put16(l, 45);
    put32(l, 0);
    put32(l, 0);
    put64(l, out->entries);
    put64(l, out->entries);
    put64(l, size);
    put64(l, at);
    plait_pickle_raw(l, "PK\6\7", 4);
    put32(l, 0);
    put64(l, end);
    put32(l, 1);
    plait_pickle_raw(l, "PK\5\6\0\0\0\0", 8);
    put16(l, 0xffff);
    put16(l, 0xffff);
    put32(l, 0xffffffff);
    put32(l, 0xffffffff);
    put16(l, 0);
    return flush(out, l);
}

int plait_torch_out_close(struct plait_torch_out *out, bool keep)
{
    int rc = keep ? write_list(out) : 0, saved = errno;

    free(out->list.bytes);
    out->list.bytes = NULL;
    if (plait_file_out_close(&out->file, keep && rc == 0) < 0 && rc == 0)
        return -1;
    errno = saved;
    return rc;
}

void plait_torch_out_tensor(struct plait_pickle_out *to, int key,
                            enum plait_dtype type, uint64_t rows, uint64_t cols)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", key);
    plait_pickle_name(to, "torch._utils", "_rebuild_tensor_v2");
    plait_pickle_ops(to, "((");
    plait_pickle_text(to, "storage");
    plait_pickle_name(to, "torch",
                      type == PLAIT_BF16_T   ? "BFloat16Storage"
                      : type == PLAIT_FP16_T ? "HalfStorage"
                                             : "FloatStorage");
    plait_pickle_text(to, number);
    plait_pickle_text(to, "cpu");
    plait_pickle_int(to, (int64_t)(rows * (cols ? cols : 1)));
    plait_pickle_ops(to, "tQ");
    plait_pickle_int(to, 0);
    plait_pickle_ops(to, "(");
    plait_pickle_int(to, (int64_t)rows);
    if (cols)
        plait_pickle_int(to, (int64_t)cols);
    plait_pickle_ops(to, "t(");
    if (cols)
        plait_pickle_int(to, (int64_t)cols);
    plait_pickle_int(to, 1);
    plait_pickle_ops(to, "t\x89");
    plait_pickle_name(to, "collections", "OrderedDict");
    plait_pickle_ops(to, ")RtR");
}
