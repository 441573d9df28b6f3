/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/megatron_index.h"

#include <endian.h>
#include <string.h>

enum { TYPE_I32 = 4, TYPE_U16 = 8 };

bool plait_megatron_is_small(int vocab)
{
    return vocab < 65500;
}

static int put_64(FILE *to, int64_t value)
{
    uint64_t bytes = htole64((uint64_t)value);

    return fwrite(&bytes, sizeof(bytes), 1, to) == 1 ? 0 : -1;
}

static int put_head(FILE *index, int64_t documents, int width)
{
    unsigned char type = width == 2 ? TYPE_U16 : TYPE_I32;

    return fwrite("MMIDIDX\0", 9, 1, index) == 1 && put_64(index, 1) == 0 &&
                   fwrite(&type, 1, 1, index) == 1 &&
                   put_64(index, documents) == 0 &&
                   put_64(index, documents + 1) == 0
               ? 0
               : -1;
}

/* Write the documents' lengths, or with `summed` their offsets in bytes. */
static int put_lengths(FILE *index, FILE *lengths, int64_t documents, int width,
                       bool summed)
{
    int64_t at = 0;
    uint32_t length;

    rewind(lengths);
    for (int64_t i = 0; i < documents; i++) {
        if (fread(&length, sizeof(length), 1, lengths) != 1 ||
            (summed ? put_64(index, at)
             : fwrite(&length, sizeof(length), 1, index) == 1 ? 0
                                                              : -1))
            return -1;
        at += (int64_t)le32toh(length) * width;
    }
    return 0;
}

int plait_megatron_write_index(FILE *index, FILE *lengths, int64_t documents,
                               int width)
{
    if (fflush(lengths) != 0 || put_head(index, documents, width) < 0 ||
        put_lengths(index, lengths, documents, width, false) < 0 ||
        put_lengths(index, lengths, documents, width, true) < 0)
        return -1;
    for (int64_t i = 0; i <= documents; i++)
        if (put_64(index, i) < 0)
            return -1;
    return 0;
}
