/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/checkpoint/copy_image.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/safetensors.h"
#include "topology/base/hash.h"

static const char magic[8] = "PLAITCP1";

char *plait_copy_image_create(const struct plait_rank_shard *shard,
                              size_t *size)
{
    struct plait_copy_head head = {.origin = 0};
    size_t table;
    unsigned char *text =
        plait_safetensors_encode(shard->slices, shard->n, &table);
    char *image = NULL;

    if (text) {
        head.bytes = PLAIT_COPY_HEAD + table + shard->bytes;
        head.table = table;
        image = calloc(1, head.bytes);
    }
    if (image) {
        memcpy(image, &head, sizeof(head));
        memcpy(image + PLAIT_COPY_HEAD, text, table);
        *size = head.bytes;
    }
    free(text);
    return image;
}

uint64_t plait_copy_image_hash(const char *image)
{
    struct plait_copy_head head;
    uint64_t hash = plait_hash_bytes(PLAIT_HASH_START, image,
                                     offsetof(struct plait_copy_head, hash));

    memcpy(&head, image, sizeof(head));
    return plait_hash_bytes(hash, image + PLAIT_COPY_HEAD, head.table);
}

static int check_data(const struct plait_rank_shard *shard, const float *data,
                      struct plait_error *err)
{
    for (int i = 0; i < shard->n; i++) {
        size_t n = shard->slices[i].count;

        if (plait_finite_check(shard->slices[i].name, 0, data, n, err) < 0)
            return -1;
        data += n;
    }
    return 0;
}

int plait_copy_image_fill(char *image, const struct plait_rank_shard *shard,
                          const struct plait_copy_head *head,
                          struct plait_error *err)
{
    struct plait_copy_head old, new;
    char *data;

    memcpy(&old, image, sizeof(old));
    memset(image, 0, sizeof(old.magic));
    data = image + PLAIT_COPY_HEAD + old.table;
    if (plait_rank_shard_copy(shard, data, err) < 0 ||
        check_data(shard, (const float *)(const void *)data, err) < 0)
        return -1;
    memcpy(&new, head, sizeof(new)); /* padding included */
    memcpy(new.magic, magic, sizeof(magic));
    new.bytes = old.bytes;
    new.table = old.table;
    memcpy(image, &new, sizeof(new));
    new.hash = plait_copy_image_hash(image);
    memcpy(image, &new, sizeof(new));
    return 0;
}

bool plait_copy_image_fits(uint64_t size)
{
    uint64_t memory =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    return size >= PLAIT_COPY_HEAD && size <= memory &&
           size % sizeof(int32_t) == 0;
}

int plait_copy_image_check(const char *image, size_t size,
                           struct plait_copy_head *head,
                           struct plait_error *err)
{
    struct plait_copy_head h;

    errno = EBADMSG;
    if (size < PLAIT_COPY_HEAD)
        return plait_errorf(err,
                            "a copy of %zu bytes is shorter than its "
                            "header",
                            size);
    memcpy(&h, image, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0)
        return plait_errorf(err, "it is not a copy of a rank's state");
    if (h.bytes != size || h.table > size - PLAIT_COPY_HEAD || h.ranks < 1 ||
        h.origin < 0 || h.origin >= h.ranks || h.step < 0)
        return plait_errorf(err, "the header of the copy contradicts itself");
    if (h.hash != plait_copy_image_hash(image))
        return plait_errorf(err, "the copy does not match its hash");
    *head = h;
    return 0;
}
