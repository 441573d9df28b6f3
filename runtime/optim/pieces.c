/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dtype.h"
#include "runtime/optim/optim_private.h"

/* What a checkpoint stores of this rank: masters, states per weight, and states
 * per tensor. */

static void add_piece(struct plait_optim *optim,
                      const struct plait_optim_slice *s, const char *state,
                      void *data)
{
    optim->pieces[optim->npieces++] =
        (struct plait_optim_piece){.tensor = s->tensor,
                                   .state = state,
                                   .home = PLAIT_PIECE_WEIGHTS,
                                   .first = s->first,
                                   .count = s->count,
                                   .data = data};
}

static void add_weights(struct plait_optim *optim,
                        const struct plait_optim_slice *s)
{
    add_piece(optim, s, s->tensor->load ? "balance" : NULL,
              s->master ? s->master : s->weight);
    if (!s->master)
        optim->pieces[optim->npieces - 1].home = PLAIT_PIECE_BF16;
}

static void add_tensor_state(struct plait_optim *optim, int slice)
{
    optim->pieces[optim->npieces++] = (struct plait_optim_piece){
        .tensor = optim->slices[slice].tensor,
        .state = optim->rule->tensor_state,
        .home = PLAIT_PIECE_HOST,
        .shape = {1, 1},
        .count = 1,
        .data = &optim->tensor_state[slice],
    };
}

static void add_state(struct plait_optim *optim, int slice, int which,
                      const char *name)
{
    const struct plait_optim_slice *s = &optim->slices[slice];

    if (s->state[which]) {
        add_piece(optim, s, name, s->state[which]);
        if (optim->shards->state_type == PLAIT_BF16_T)
            optim->pieces[optim->npieces - 1].home = PLAIT_PIECE_BF16;
    } else if (optim->codes) {
        add_piece(optim, s, name, NULL);
        optim->pieces[optim->npieces - 1].home = PLAIT_PIECE_CODES;
        optim->pieces[optim->npieces - 1].slice = slice;
        optim->pieces[optim->npieces - 1].which = which;
    }
}

int plait_optim_list_pieces(struct plait_optim *optim, struct plait_error *err)
{
    const struct plait_optimizer *o =
        &plait_optimizers[optim->model->config->optim.kind];
    int more = plait_directions_pieces(optim, NULL);

    optim->pieces =
        calloc((size_t)optim->nslices * (PLAIT_OPTIM_STATES + 2) + more + 1,
               sizeof(*optim->pieces));
    if (!optim->pieces)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < optim->nslices; i++) {
        const struct plait_optim_slice *s = &optim->slices[i];

        add_weights(optim, s);
        if (s->tensor->balance)
            continue; /* no optimizer has a state of it */
        for (int k = 0; k < PLAIT_OPTIM_STATES; k++)
            add_state(optim, i, k, o->state[k]);
        if (optim->rule->tensor_state)
            add_tensor_state(optim, i);
    }
    optim->npieces +=
        plait_directions_pieces(optim, optim->pieces + optim->npieces);
    return 0;
}

int plait_optim_pieces(const struct plait_optim *optim,
                       const struct plait_optim_piece **pieces)
{
    *pieces = optim->pieces;
    return optim->npieces;
}

/* Whether weights are still gathered, which pieces are part of: whoever forgets
 * plait_optim_settle() is refused rather than given some of them. */
static bool is_unsettled(const struct plait_optim *optim)
{
    if (!plait_shards_gathering(optim->shards))
        return false;
    errno = EINPROGRESS;
    return true;
}

/* Reads bf16 into the second half of the memory and widens it from there. */
static int read_bf16(const struct plait_optim *optim, const uint16_t *data,
                     size_t n, float *to)
{
    uint16_t *narrow = (uint16_t *)to + n;

    if (plait_optim_read(optim, narrow, data, n * sizeof(*narrow)) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint16_t x;

        memcpy(&x, narrow + i, sizeof(x));
        to[i] = plait_f32_of_bf16(x);
    }
    return 0;
}

/* Rounds to nearest, which changes nothing that was read. */
int plait_optim_write_bf16(const struct plait_optim *optim, uint16_t *data,
                           size_t n, const float *from)
{
    uint16_t *narrow = malloc(n * sizeof(*narrow) + 1);
    int rc = narrow ? 0 : -1;

    for (size_t i = 0; i < n && rc == 0; i++)
        narrow[i] = plait_bf16_of_f32(from[i]);
    if (rc == 0)
        rc = plait_optim_write(optim, data, narrow, n * sizeof(*narrow));
    free(narrow);
    return rc;
}

int plait_optim_read_piece(const struct plait_optim *optim,
                           const struct plait_optim_piece *p, size_t first,
                           size_t n, float *to)
{
    if (is_unsettled(optim))
        return -1;
    if (p->home == PLAIT_PIECE_WEIGHTS)
        return plait_optim_read(optim, to, (float *)p->data + first,
                                n * sizeof(*to));
    if (p->home == PLAIT_PIECE_BF16)
        return read_bf16(optim, (uint16_t *)p->data + first, n, to);
    if (p->home == PLAIT_PIECE_CODES)
        return plait_optim_codes_read(optim->codes, p->slice, p->which, first,
                                      n, to);
    memcpy(to, (float *)p->data + first, n * sizeof(*to));
    return 0;
}

bool plait_optim_pieces_equal(const struct plait_optim *optim)
{
    const struct plait_optim_rule *rule = optim->rule;

    return !optim->codes && optim->shards->state_type == PLAIT_F32 &&
           optim->model->config->optim.masters == PLAIT_MASTERS_FP32 &&
           !rule->tensor_state &&
           !(rule->direction && rule->direction->divided);
}

const char *plait_optim_read_error(const struct plait_optim *optim)
{
    const char *why = plait_queue_error(optim->shards->state_q);

    return why ? why : strerror(errno);
}

int plait_optim_write_piece(const struct plait_optim *optim,
                            const struct plait_optim_piece *p, size_t first,
                            size_t n, const float *from)
{
    if (is_unsettled(optim))
        return -1;
    if (p->home == PLAIT_PIECE_WEIGHTS)
        return plait_optim_write(optim, (float *)p->data + first, from,
                                 n * sizeof(*from));
    if (p->home == PLAIT_PIECE_BF16)
        return plait_optim_write_bf16(optim, (uint16_t *)p->data + first, n,
                                      from);
    if (p->home == PLAIT_PIECE_CODES)
        return plait_optim_codes_write(optim->codes, p->slice, p->which, first,
                                       n, from);
    memcpy((float *)p->data + first, from, n * sizeof(*from));
    return 0;
}
