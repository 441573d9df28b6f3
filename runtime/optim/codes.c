/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/codes.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/dynamic_map.h"
#include "kernels/kernels.h"

/* Tensors with fewer elements have fp32 states. */
#define CODED ((size_t)4096)

struct plait_optim_codes {
    const struct plait_shards *shards;
    struct plait_slice_codes *slices;
    uint8_t *code; /* device memory of all slices */
    float *scale, *plain;
};

/* The copies of a tied tensor on both ends of a pipeline must stay equal, but
 * ZeRO cuts them at other elements and blocks would differ. */
static bool is_coded(const struct plait_tensor *t)
{
    size_t n = 1;

    if (t->tied)
        return false;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n >= CODED;
}

static size_t blocks_of(size_t count)
{
    return (count + PLAIT_MAP_BLOCK - 1) / PLAIT_MAP_BLOCK;
}

/* How many blocks and fp32 numbers the slices need; slices begin at whole
 * blocks. */
struct need {
    size_t blocks, plain;
};

static void place_slice(struct plait_optim_codes *c,
                        struct plait_optim_slice *slice,
                        struct plait_slice_codes *codes, struct need *at)
{
    size_t blocks = blocks_of(slice->count);
    bool coded = is_coded(slice->tensor);

    for (int k = 0; k < PLAIT_OPTIM_STATES; k++) {
        if (coded && c->code) {
            codes->code[k] = c->code + at->blocks * PLAIT_MAP_BLOCK;
            codes->scale[k] = c->scale + at->blocks;
        } else if (!coded && c->plain) {
            slice->state[k] = c->plain + at->plain;
        }
        at->blocks += coded ? blocks : 0;
        at->plain += coded ? 0 : blocks * PLAIT_MAP_BLOCK;
    }
}

static struct need place_slices(struct plait_optim_codes *c,
                                struct plait_optim_slice *slices, int n)
{
    struct need at = {0, 0};

    for (int i = 0; i < n; i++)
        place_slice(c, &slices[i], &c->slices[i], &at);
    return at;
}

struct plait_optim_codes *
plait_optim_codes_create(const struct plait_shards *shards,
                         struct plait_optim_slice *slices, int n,
                         struct plait_error *err)
{
    struct plait_optim_codes *c = calloc(1, sizeof(*c));
    const struct plait_ops *ops = shards->state_ops;
    struct need need;

    if (!c)
        goto error;
    c->shards = shards;
    c->slices = calloc((size_t)n + 1, sizeof(*c->slices));
    if (!c->slices)
        goto error;
    need = place_slices(c, slices, n);
    c->code = ops->alloc(shards->state_dev, need.blocks * PLAIT_MAP_BLOCK + 1);
    c->scale =
        ops->alloc(shards->state_dev, (need.blocks + 1) * sizeof(*c->scale));
    c->plain =
        ops->alloc(shards->state_dev, (need.plain + 1) * sizeof(*c->plain));
    if (!c->code || !c->scale || !c->plain)
        goto error;
    place_slices(c, slices, n);
    return c;

error:
    plait_optim_codes_destroy(c);
    errno = ENOMEM;
    plait_errorf(err, "out of memory for the optimizer state");
    return NULL;
}

void plait_optim_codes_destroy(struct plait_optim_codes *c)
{
    int saved = errno;

    if (!c)
        return;
    c->shards->state_ops->free(c->shards->state_dev, c->code);
    c->shards->state_ops->free(c->shards->state_dev, c->scale);
    c->shards->state_ops->free(c->shards->state_dev, c->plain);
    free(c->slices);
    free(c);
    errno = saved;
}

const struct plait_slice_codes *
plait_optim_codes_of(const struct plait_optim_codes *c, int slice)
{
    return &c->slices[slice];
}

/* -- to and from fp32 ----------------------------------------------------- */

/* Host memory for data of the device. */
struct stage {
    uint8_t *code;
    float *scale;
};

static int open_stage(struct stage *s, size_t n)
{
    s->code = malloc(n + 1);
    s->scale = malloc((blocks_of(n) + 1) * sizeof(*s->scale));
    return s->code && s->scale ? 0 : -1;
}

static void close_stage(struct stage *s)
{
    free(s->code);
    free(s->scale);
}

/* The second moment is never negative. */
static bool has_sign(int which)
{
    return which == 0;
}

int plait_optim_codes_read(const struct plait_optim_codes *c, int slice,
                           int which, size_t first, size_t n, float *to)
{
    const struct plait_slice_codes *from = &c->slices[slice];
    const struct plait_shards *shards = c->shards;
    size_t block = first / PLAIT_MAP_BLOCK;
    struct stage s;
    int rc = open_stage(&s, n);

    if (rc == 0)
        rc = shards->state_ops->to_host(shards->state_q, s.code,
                                        from->code[which] + first, n);
    if (rc == 0)
        rc = shards->state_ops->to_host(shards->state_q, s.scale,
                                        from->scale[which] + block,
                                        blocks_of(n) * sizeof(*s.scale));
    for (size_t i = 0; i < n && rc == 0; i++)
        to[i] = plait_map_decode(s.code[i], has_sign(which)) *
                s.scale[i / PLAIT_MAP_BLOCK];
    close_stage(&s);
    return rc;
}

static void encode(struct stage *s, const float *from, size_t n, int sign)
{
    for (size_t at = 0; at < n; at += PLAIT_MAP_BLOCK) {
        size_t end = n - at < PLAIT_MAP_BLOCK ? n : at + PLAIT_MAP_BLOCK;
        float low = 0, high = 0, scale;

        for (size_t i = at; i < end; i++) {
            low = from[i] < low ? from[i] : low;
            high = from[i] > high ? from[i] : high;
        }
        scale = plait_map_scale(low, high);
        s->scale[at / PLAIT_MAP_BLOCK] = scale;
        for (size_t i = at; i < end; i++)
            s->code[i] =
                plait_map_encode(from[i], plait_map_inverse(scale), sign);
    }
}

int plait_optim_codes_write(const struct plait_optim_codes *c, int slice,
                            int which, size_t first, size_t n,
                            const float *from)
{
    const struct plait_slice_codes *to = &c->slices[slice];
    const struct plait_shards *shards = c->shards;
    size_t block = first / PLAIT_MAP_BLOCK;
    struct stage s;
    int rc = open_stage(&s, n);

    if (rc == 0) {
        encode(&s, from, n, has_sign(which));
        rc = shards->state_ops->to_device(shards->state_q,
                                          to->code[which] + first, s.code, n);
    }
    if (rc == 0)
        rc = shards->state_ops->to_device(shards->state_q,
                                          to->scale[which] + block, s.scale,
                                          blocks_of(n) * sizeof(*s.scale));
    close_stage(&s);
    return rc;
}
