/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/shard.h"

#include <endian.h>
#include <errno.h>
#include <libdeflate.h>
#include <limits.h>
#include <string.h>

static const char magic[8] = "PLAITTOK";

static void put_u32(unsigned char *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof(value));
}

static uint32_t get_u32(const unsigned char *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof(value));
    return le32toh(value);
}

static uint32_t header_checksum(const unsigned char *bytes)
{
    return libdeflate_crc32(0, bytes, 60);
}

void plait_shard_encode(const struct plait_shard_header *header,
                        unsigned char bytes[PLAIT_SHARD_HEADER])
{
    uint64_t tokens = htole64((uint64_t)header->tokens);

    memset(bytes, 0, PLAIT_SHARD_HEADER);
    memcpy(bytes, magic, sizeof(magic));
    put_u32(bytes + 8, header->masked ? 2 : 1);
    put_u32(bytes + 12, (uint32_t)header->width);
    memcpy(bytes + 16, &tokens, sizeof(tokens));
    put_u32(bytes + 24, (uint32_t)header->vocab);
    memcpy(bytes + 28, header->tokenizer, PLAIT_SHARD_TOKENIZER);
    put_u32(bytes + 60, header_checksum(bytes));
}

int plait_shard_decode(const char *name,
                       const unsigned char bytes[PLAIT_SHARD_HEADER],
                       struct plait_shard_header *header,
                       struct plait_error *err)
{
    uint32_t width = get_u32(bytes + 12), vocab = get_u32(bytes + 24);
    uint64_t tokens;

    errno = EINVAL;
    memcpy(&tokens, bytes + 16, sizeof(tokens));
    tokens = le64toh(tokens);
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return plait_errorf(err, "%s: not a plait shard: the magic is missing",
                            name);
    if (get_u32(bytes + 8) != 1 && get_u32(bytes + 8) != 2)
        return plait_errorf(err,
                            "%s: plait shard of version %u; this program "
                            "reads versions 1 and 2",
                            name, get_u32(bytes + 8));
    if (get_u32(bytes + 60) != header_checksum(bytes))
        return plait_errorf(err,
                            "%s: corrupt header: its checksum is %08x, not "
                            "%08x as it says",
                            name, header_checksum(bytes), get_u32(bytes + 60));
    if ((width != 2 && width != 4) || vocab < 1 || vocab > INT_MAX ||
        (get_u32(bytes + 8) == 2 && width == 2 && vocab > 1 << 15) ||
        tokens > INT64_MAX / 8 || bytes[28 + PLAIT_SHARD_TOKENIZER - 1])
        return plait_errorf(err,
                            "%s: invalid header: %u bytes a token, "
                            "vocabulary %u, %llu tokens",
                            name, width, vocab, (unsigned long long)tokens);
    header->width = (int)width;
    header->tokens = (int64_t)tokens;
    header->vocab = (int)vocab;
    header->masked = get_u32(bytes + 8) == 2;
    memcpy(header->tokenizer, bytes + 28, PLAIT_SHARD_TOKENIZER);
    return 0;
}
