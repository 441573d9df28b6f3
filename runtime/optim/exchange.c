/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/optim/exchange.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/optim/fragments.h"
#include "topology/job/tensors.h"

/* The factor of a number before it is rounded to e5m2, whose smallest is
 * 2^-16. */
#define FP8_SCALE 0x1p12f

/* A run's codes begin at a word, and its last word has none of its
 * neighbour's. */
_Static_assert(PLAIT_REGION_ALIGN % 4 == 0, "a run has whole words of codes");

struct plait_exchange {
    enum plait_sync_gradients form;
    struct plait_comm *dp;
    const struct plait_ops *ops;
    struct plait_queue *q;
    struct plait_device *dev;
    size_t element, room; /* bytes of a code; numbers that there is room for */
    char *mine, *all;     /* [room], [ranks, room] codes; NULL with fp32 */
};

/* Of the codes of n numbers, which travel as whole numbers of 4 bytes: no
 * transfer has elements of one. */
static size_t bytes_of(const struct plait_exchange *e, size_t n)
{
    return (n * e->element + 3) / 4 * 4;
}

struct plait_exchange *
plait_exchange_create(const struct plait_sync_config *config,
                      struct plait_comm *dp, const struct plait_vectors *v,
                      struct plait_device *dev)
{
    struct plait_exchange *e = calloc(1, sizeof(*e));
    size_t bytes;

    if (!e)
        return NULL;
    e->form = config->gradients;
    e->dp = dp;
    e->ops = v->ops;
    e->q = v->q;
    e->dev = dev;
    e->element = plait_sync_element(config);
    e->room = (size_t)plait_sync_room(config, (double)v->n);
    if (e->form == PLAIT_SYNC_FP32)
        return e;
    bytes = bytes_of(e, e->room) + 1;
    e->mine = e->ops->alloc(dev, bytes);
    e->all = e->ops->alloc(dev, plait_comm_size(dp) * bytes);
    if (e->mine && e->all)
        return e;
    plait_exchange_destroy(e);
    errno = ENOMEM;
    return NULL;
}

void plait_exchange_destroy(struct plait_exchange *e)
{
    int saved = errno;

    if (!e)
        return;
    e->ops->free(e->dev, e->mine);
    e->ops->free(e->dev, e->all);
    free(e);
    errno = saved;
}

static int encode(const struct plait_exchange *e, char *codes, float *x,
                  size_t n)
{
    if (e->form == PLAIT_SYNC_FP8)
        return e->ops->e5m2_encode(
            e->q,
            &(struct plait_e5m2){
                .codes = (uint8_t *)codes, .x = x, .s = FP8_SCALE, .n = n});
    return e->ops->cast(e->q, &(struct plait_cast){.to = PLAIT_BF16_T,
                                                   .from = PLAIT_F32,
                                                   .dst = codes,
                                                   .src = x,
                                                   .n = n});
}

/* x = (+=) what the codes are of. */
static int decode(const struct plait_exchange *e, float *x, char *codes,
                  size_t n, bool more)
{
    if (e->form == PLAIT_SYNC_FP8)
        return e->ops->e5m2_decode(
            e->q, &(struct plait_e5m2){.codes = (uint8_t *)codes,
                                       .x = x,
                                       .s = FP8_SCALE,
                                       .accumulate = more,
                                       .n = n});
    return e->ops->cast_2d(e->q, &(struct plait_cast_2d){.to = PLAIT_F32,
                                                         .from = PLAIT_BF16_T,
                                                         .dst = x,
                                                         .dst_stride = n,
                                                         .src = codes,
                                                         .src_stride = n,
                                                         .rows = 1,
                                                         .cols = n,
                                                         .accumulate = more});
}

int plait_exchange_send(struct plait_exchange *e, float *x, size_t at, size_t n,
                        struct plait_request **req)
{
    int ranks = plait_comm_size(e->dp);
    struct plait_buffers b = {x, x, n, PLAIT_F32};

    if (e->form == PLAIT_SYNC_FP32)
        return plait_comm_all_reduce(e->dp, &b, PLAIT_SUM, e->q, req);
    b = (struct plait_buffers){e->mine + at * e->element,
                               e->all + ranks * at * e->element,
                               bytes_of(e, n) / 4, PLAIT_I32};
    if (encode(e, e->mine + at * e->element, x, n) < 0)
        return -1;
    return plait_comm_all_gather(e->dp, &b, e->q, req);
}

int plait_exchange_receive(struct plait_exchange *e, float *x, size_t at,
                           size_t n, struct plait_request **req)
{
    int ranks = plait_comm_size(e->dp);
    char *all = e->all;

    if (req && *req && plait_comm_wait(req, e->q) < 0)
        return -1;
    for (int i = 0; e->form != PLAIT_SYNC_FP32 && i < ranks; i++) {
        char *codes = all + ranks * at * e->element + i * bytes_of(e, n);

        if (decode(e, x, codes, n, i > 0) < 0)
            return -1;
    }
    return 0;
}

int plait_exchange_sum(struct plait_exchange *e, float *x, size_t all)
{
    size_t n;

    if (e->form == PLAIT_SYNC_FP32)
        return plait_fragment_sum(e->dp, e->q, x, all);
    for (size_t at = 0; at < all; at += n) {
        n = all - at < e->room ? all - at : e->room;
        if (plait_exchange_send(e, x + at, 0, n, NULL) < 0 ||
            plait_exchange_receive(e, x + at, 0, n, NULL) < 0)
            return -1;
    }
    return 0;
}
