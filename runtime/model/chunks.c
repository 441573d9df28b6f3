/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/hooks.h"
#include "runtime/model/internal.h"
#include "topology/plan/cost_layer.h"

/* In how many chunks rows are gathered and reduced over the tp group
 * (runtime/mesh/tensor_parallel.h). All ranks and pipeline stages choose the
 * same number: it depends on rows, matrices and figures of the device, which
 * are equal. */

/* Least rows of a chunk: products of fewer rows are slower when split, on a CPU
 * too. */
#define LEAST_ROWS 128

static double seconds_of(const struct plait_work *w, int chunks)
{
    const struct plait_dims *d = w->d;
    const struct plait_mesh *mesh = w->model->mesh;
    int domains = mesh->domains[PLAIT_GROUP_TP];
    struct plait_cost_layer layer = {
        .rows = (double)w->shape->N,
        .hidden = d->hidden,
        .width = {d->qkv, (double)d->heads * d->head_dim, d->up, d->ffn},
        .element = (double)plait_dtype_size(w->type),
        .precision = w->model->config->train.precision,
        .sequence = w->tp.sequence,
        .inside = d->tp / domains,
        .across = domains};

    if (d->experts)
        layer.width[2] = layer.width[3] = 0;
    return plait_cost_chunked(&layer, chunks, &mesh->gpu);
}

static bool is_possible(const struct plait_work *w, int chunks)
{
    size_t N = w->shape->N, n = (size_t)chunks;

    return n == 1 || (N / n >= LEAST_ROWS && N % (n * w->d->tp) == 0);
}

/* On a CPU, whose transfers need no launch, as many chunks as possible; on a
 * GPU the number with the least predicted time. In fp8 at most two, because
 * each product rounds all of its weight. */
int plait_choose_chunks(const struct plait_work *w)
{
    int most = w->fp8 ? 2 : PLAIT_TP_CHUNKS_MOST, best = 1;
    double least = 0;

    if (w->d->tp == 1)
        return 1;
    for (int n = 1; n <= most; n++) {
        double seconds;

        if (!is_possible(w, n))
            continue;
        seconds = w->ops->gpu ? seconds_of(w, n) : -n;
        if (n == 1 || seconds < least) {
            best = n;
            least = seconds;
        }
    }
    return best;
}
