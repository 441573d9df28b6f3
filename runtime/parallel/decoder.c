/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/parallel/decoder.h"

#include <errno.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/comm/tags.h"

struct plait_decoder {
    struct plait_model *model;
    void *in, *out; /* [rows, hidden]; NULL: first or last stage */
};

static int make_buffers(struct plait_decoder *d, int rows)
{
    struct plait_mesh *mesh = d->model->mesh;
    size_t bytes = (size_t)rows * d->model->config->model.hidden *
                   plait_dtype_size(d->model->type);
    int stage = mesh->coord.at[PLAIT_PP];

    if (stage > 0 && !(d->in = mesh->ops->alloc(mesh->dev, bytes)))
        return -1;
    if (stage < mesh->layout.size[PLAIT_PP] - 1 &&
        !(d->out = mesh->ops->alloc(mesh->dev, bytes)))
        return -1;
    return 0;
}

struct plait_decoder *plait_decoder_create(struct plait_model *model, int texts,
                                           int length, int rows,
                                           struct plait_error *err)
{
    struct plait_decoder *d = calloc(1, sizeof(*d));

    if (!d) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    d->model = model;
    if (plait_model_reserve_texts(model, texts, length, rows, err) < 0)
        goto error;
    if (make_buffers(d, rows) == 0)
        return d;
    plait_errorf(err, "out of memory for the pipeline's buffers");
error:
    plait_decoder_destroy(d);
    return NULL;
}

void plait_decoder_destroy(struct plait_decoder *d)
{
    const struct plait_mesh *mesh;
    int saved = errno;

    if (!d)
        return;
    mesh = d->model->mesh;
    mesh->ops->free(mesh->dev, d->in);
    mesh->ops->free(mesh->dev, d->out);
    free(d);
    errno = saved;
}

int plait_decoder_extend(struct plait_decoder *d,
                         const struct plait_additions *added, float *logits)
{
    struct plait_mesh *mesh = d->model->mesh;
    struct plait_comm *pp = mesh->group[PLAIT_GROUP_PP];
    int stages = mesh->layout.size[PLAIT_PP];
    int stage = mesh->coord.at[PLAIT_PP];
    size_t n = 0;

    for (int i = 0; i < added->n; i++)
        n += added->add[i].count;
    n *= d->model->config->model.hidden;
    if (d->in && plait_comm_recv(
                     pp,
                     &(struct plait_buffers){
                         .recv = d->in, .n = n, .type = d->model->type},
                     stage - 1, plait_tag_boundary(stages, stage - 1, false, 0),
                     mesh->q, NULL) < 0)
        return -1;
    if (plait_model_extend(d->model, added, d->in, d->out, logits) < 0)
        return -1;
    if (!d->out)
        return 0;
    return plait_comm_send(
        pp,
        &(struct plait_buffers){.send = d->out, .n = n, .type = d->model->type},
        stage + 1, plait_tag_boundary(stages, stage, false, 0), mesh->q, NULL);
}
